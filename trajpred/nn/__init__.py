"""The graph-transformer core: operators on tensors, edges and poses (docs/concepts/operators.md)."""

from trajpred.nn.attention import (
    EdgeBias,
    Edges,
    GraphAttention,
    GraphTransformerLayer,
    Layout,
    at_least_float32,
    mlp,
)
from trajpred.nn.edge_attention import EdgeAttention
from trajpred.nn.published.gat import GATEncoder, GATLayer
from trajpred.nn.published.graph_transformer import (
    DwivediGraphTransformerEdgeLayer,
    DwivediGraphTransformerLayer,
    GraphTransformerNet,
    laplacian_positional_encoding,
    random_walk_positional_encoding,
)
from trajpred.nn.published.multi_head_attention import (
    CONTEXT,
    SOURCE,
    TARGET,
    MultiHeadAttentionConv,
    ReceiverTag,
)
from trajpred.nn.published.padded_attention import (
    BiasedEncoderLayer,
    PaddedAttention,
    merge_tensors,
    pad_samples,
)
from trajpred.nn.published.structural_bias import (
    GaussianDistanceKernel,
    GraphStructure,
    StructuralBias,
    shortest_paths,
)
from trajpred.nn.published.transformer_conv import TransformerConv
from trajpred.nn.published.transformer_m import TransformerMEncoder
from trajpred.nn.segment import (
    FlatGraphs,
    flatten_edges,
    flatten_stars,
    segment_softmax,
    segment_sum,
    star_edges,
)
