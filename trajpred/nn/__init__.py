"""The graph-transformer core. Knows tensors, edges and poses; nothing of driving."""

from trajpred.nn.attention import EdgeBias, GraphAttention
from trajpred.nn.layer import GraphTransformerLayer, mlp
from trajpred.nn.relation import DenseRelation, EdgeRelation, GroupRelation, Padding, Relation
from trajpred.nn.segment import segment_softmax, segment_sum

__all__ = [
    "DenseRelation",
    "EdgeBias",
    "EdgeRelation",
    "GraphAttention",
    "GraphTransformerLayer",
    "GroupRelation",
    "Padding",
    "Relation",
    "mlp",
    "segment_softmax",
    "segment_sum",
]
