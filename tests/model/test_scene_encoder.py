"""The scene encoder and the star encoder: their graphs, reach and attention read-out."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from tests.conftest import ROOT, rejects
from tests.model.small import batch_of, evaluate_as
from tests.model.systems import CONFIGS, small
from trajpred.data.geometry import POSE_SCALE, relative_pose
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.data.tracks import OBJECT_TYPES
from trajpred.features.config import EDGE_POSE, HISTORY, VALID
from trajpred.model import SceneEncoder, StarSceneEncoder
from trajpred.model.scene_encoder import AgentEncoder, TokenEncoder, TokenGraph
from trajpred.model.star_encoder import Stars
from trajpred.nn import flatten_stars
from trajpred.training.lit_forecaster import LitForecaster


@pytest.mark.parametrize("steps", [1, 2, 19, 50])
def test_steps_that_were_never_observed_change_nothing_where_they_are_masked(steps: int) -> None:
    """Truth: the same history without the steps; with all steps both ways read the same."""
    masked = AgentEncoder(32, "masked").double()
    zeros = AgentEncoder(32, "zeros").double()
    zeros.load_state_dict(masked.state_dict())
    history = torch.randn(6, steps, len(HISTORY), dtype=torch.float64)
    types = torch.arange(6)
    history[..., VALID] = 1.0
    torch.testing.assert_close(masked(history, types), zeros(history, types))
    history[0, : steps // 2] = history[1, steps // 3 : -1] = 0.0
    for more in (1, 7, 30):
        longer = torch.cat((torch.zeros(6, more, len(HISTORY)).double(), history), 1)
        torch.testing.assert_close(masked(longer, types), masked(history, types))
    assert not torch.allclose(zeros(longer, types), zeros(history, types))
    assert masked(torch.zeros_like(history), types).isfinite().all(), "padding of a bundle"


@pytest.mark.parametrize("layers", [1, 2])
def test_a_token_depends_on_nodes_as_many_edges_away_as_layers(real: list[Scenario], layers: int) -> None:
    encoder = SceneEncoder(dim=32, heads=4, layers=layers).eval()
    batch = batch_of(real[-1:])
    source = 0
    index = TokenGraph.of(batch).index
    with torch.inference_mode():
        before = encoder.encode(batch).nodes
        batch["agent"].history[source] += 1.0
        changed = (encoder.encode(batch).nodes - before).abs().amax(1) > 1e-6
    reached = torch.zeros(len(before), dtype=torch.bool)
    reached[source] = True
    for _ in range(layers):
        reached[index[1, reached[index[0]]]] = True
    assert 1 < reached.sum() < len(reached)
    assert torch.equal(changed, reached)


def test_reported_attention_is_that_of_either_evaluation(model: LitForecaster, real: list[Scenario]) -> None:
    batch = batch_of(real)
    dense = evaluate_as(model, "dense").forecaster.encoder.attention_weights(batch)
    edges = evaluate_as(model, "edges").forecaster.encoder.attention_weights(batch)
    for attention, of_edges in zip(dense, edges, strict=True):
        weight = attention.weight
        A = len(attention.track_id)
        assert weight.shape == (2, 4, A, A + len(attention.lane))
        np.testing.assert_allclose(weight, of_edges.weight, atol=1e-5)
        np.testing.assert_allclose(weight.sum(-1), 1, atol=1e-5)
        assert (np.einsum("nhaa->nha", weight[..., :A]) == 0).all(), "no self edges"


def test_reported_lanes_are_rows_of_the_scenario_s_map(model: LitForecaster, real: list[Scenario]) -> None:
    batch = batch_of(real)
    middles = batch.origin[batch["lane"].batch] + batch["lane"].position
    scene_of = batch["lane"].batch
    weights = model.forecaster.encoder.attention_weights(batch)
    for scene, (scenario, attention) in enumerate(zip(real, weights, strict=True)):
        rows = attention.lane.tolist()
        assert len(set(rows)) == len(rows)
        for row, middle in zip(rows, middles[scene_of == scene].numpy(), strict=True):
            line = middle_line(scenario.map, row)
            fine = np.concatenate([np.linspace(a, b, 50) for a, b in pairwise(line)])
            assert np.linalg.norm(fine - middle, axis=1).min() < 0.5


def middle_line(lanes: LaneMap, row: int) -> np.ndarray:
    """Return the centreline of a lane, or the line halfway between the edges of a crossing."""
    if row < len(lanes):
        return lanes.centerline[row][:, :2]
    first = lanes.crossing_edge1[row - len(lanes)]
    second = lanes.crossing_edge2[row - len(lanes)]
    return (first[[0, -1], :2] + second[[0, -1], :2]) / 2


def test_encoders_without_attention_read_out_say_so(real: list[Scenario]) -> None:
    class MyEncoder(TokenEncoder):
        pass

    assert not MyEncoder().has_attention
    rejects("MyEncoder does not report attention", lambda: MyEncoder().attention_weights(batch_of(real[:1])))


@dataclass
class Neighbour:
    receiver: int
    sector: int
    sender: int
    position: tuple[float, float]


def nearest_neighbours(graph: TokenGraph, sectors: int) -> list[Neighbour]:
    """Return the nearest sender of each receiver and sector, in order."""
    nearest: dict[tuple[int, int], Neighbour] = {}
    for sender, receiver in graph.index[:, : graph.num_agent_edges].T.tolist():
        of_sender = graph.poses[sender : sender + 1]
        of_receiver = graph.poses[receiver : receiver + 1]
        x, y = relative_pose(of_sender, of_receiver).position[0].tolist()
        angle = (math.atan2(y, x) + math.pi / sectors) % (2 * math.pi)
        sector = int(angle * sectors / (2 * math.pi))
        closest = nearest.get((receiver, sector))
        if closest is None or math.hypot(x, y) < math.hypot(*closest.position):
            nearest[receiver, sector] = Neighbour(receiver, sector, sender, (x, y))
    return [nearest[key] for key in sorted(nearest)]


@pytest.mark.parametrize("sectors", [1, 8])
def test_stars_hold_the_nearest_neighbour_of_each_direction(real: list[Scenario], sectors: int) -> None:
    batch = batch_of(real)
    graph = TokenGraph.of(batch)
    stars = Stars.of(batch, sectors)
    expected = nearest_neighbours(graph, sectors)
    state = stars.state[:, 1:][stars.present[:, 1:]]
    sender = stars.agent[:, 1:][stars.present[:, 1:]]
    places = stars.present[:, 1:].nonzero().tolist()
    assert places == [[neighbour.receiver, neighbour.sector] for neighbour in expected]
    positions = torch.tensor([neighbour.position for neighbour in expected])
    torch.testing.assert_close(10 * state[:, :2], positions, rtol=0, atol=1e-3)
    assert sender.tolist() == [neighbour.sender for neighbour in expected]
    types = state[:, 6 : 6 + len(OBJECT_TYPES)].argmax(1)
    assert torch.equal(types, batch["agent"].object_type[sender])
    one_hot = state[:, 6 + len(OBJECT_TYPES) :]
    assert one_hot.argmax(1).tolist() == [neighbour.sector for neighbour in expected]
    assert stars.agent[:, 0].tolist() == list(range(graph.num_agents))
    assert stars.present[:, 0].all()
    assert torch.equal(stars.state[:, 0, :2], torch.zeros(graph.num_agents, 2))
    kept, edges, target = stars.flatten()
    flat = flatten_stars(stars.present.sum(1) - 1)
    assert torch.equal(kept, stars.present.flatten().nonzero()[:, 0])
    assert torch.equal(target, flat.target_index)
    assert sorted(edges.T.tolist()) == sorted(flat.edge_index.T.tolist())


STARS = [pytest.param(path, id=path.stem) for path in CONFIGS if path.stem.endswith("star")]


@pytest.mark.parametrize("path", STARS)
def test_the_past_of_a_neighbour_reaches_its_star(path: Path, real: list[Scenario]) -> None:
    """Not only its present state: of the output of the GAT layers, exactly the stars it is in change."""
    encoder = small(path).forecaster.encoder.eval()
    batch = batch_of(real[:2])
    outputs: list[Tensor] = []
    encoder.stars.register_forward_hook(lambda module, args, out: outputs.append(out))
    encoder.encode(batch)
    stars = Stars.of(batch, encoder.neighbors)
    changed = copy.copy(batch)
    agent = int((stars.present[:, 1:].sum(1)).argmax())
    neighbor = int(stars.agent[agent, 1:][stars.present[agent, 1:]][0])
    history = changed["agent"].history = batch["agent"].history.clone()
    history[neighbor, :-1, :2] += 1.0  # the present stays
    encoder.encode(changed)
    affected = (outputs[0] - outputs[1]).abs().amax(1) > 1e-6
    expected = ((stars.agent == neighbor) & stars.present).any(1)
    assert affected[agent]
    assert torch.equal(affected, expected)
    assert not expected.all()


def test_edges_of_stars_hold_the_sender_in_the_frame_of_the_receiver(real: list[Scenario]) -> None:
    batch = batch_of(real[:2])
    encoder = StarSceneEncoder(16, 2, 1, relative_pose=True)
    inputs: list[tuple[Tensor, ...]] = []
    encoder.stars.register_forward_pre_hook(lambda module, args: inputs.append(args))
    encoder.encode(batch)
    _, edges, _, features = inputs[0]
    stars = Stars.of(batch, encoder.neighbors)
    sender, receiver = stars.agent[stars.present][edges].numpy()
    position = batch["agent"].position.double().numpy()
    heading = batch["agent"].heading.double().numpy()
    dx, dy = (position[sender] - position[receiver]).T
    cos = np.cos(heading[receiver])
    sin = np.sin(heading[receiver])
    in_its_frame = np.stack((cos * dx + sin * dy, cos * dy - sin * dx), -1)
    first = EDGE_POSE.index("x")
    xy = POSE_SCALE * features[:, first : first + 2].double().numpy()
    np.testing.assert_allclose(xy, in_its_frame, rtol=0, atol=1e-3)
    turned = heading[sender] - heading[receiver]
    direction = np.stack((np.cos(turned), np.sin(turned)), -1)
    np.testing.assert_allclose(features[:, -2:], direction, rtol=0, atol=1e-5)


def test_completion_reconstructs_masked_steps_only(real: list[Scenario]) -> None:
    batch = batch_of(real)
    encoder = StarSceneEncoder(16, 2, 1, completion=1.0)
    loss = encoder.auxiliary_losses(batch)["completion"]
    # With all steps masked, the error is that of a guess from the validity alone.
    visible = torch.zeros_like(batch["agent"].history)
    visible[..., -1] = batch["agent"].history[..., -1]
    guess = encoder.fill_in(encoder.agent(visible)[0])
    error = torch.linalg.vector_norm(guess - batch["agent"].history[..., :2], dim=-1)
    torch.testing.assert_close(loss, error[visible[..., -1] > 0].mean())
    assert StarSceneEncoder(16, 2, 1).auxiliary_losses(batch) == {}


def test_stars_attend_to_nothing_missing(real: list[Scenario], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that were not observed and sectors without a neighbour change no token."""
    encoder = small(ROOT / "configs" / "model" / "gat_star.yaml").forecaster.encoder.eval()
    batch = batch_of(real[:2])
    stars_of = Stars.of
    history = batch["agent"].history
    before = encoder.encode(batch)
    missing = history[..., -1:] == 0
    batch["agent"].history = torch.where(missing & (torch.arange(history.shape[2]) < 6), 9.0, history)

    def filled(batch: HeteroData, sectors: int) -> Stars:
        stars = stars_of(batch, sectors)
        assert not stars.present.all()
        return stars._replace(state=torch.where(stars.present[..., None], stars.state, 9.0))

    monkeypatch.setattr(Stars, "of", filled)
    after = encoder.encode(batch)
    assert missing.any()
    assert before.agent.std() > 0.1
    torch.testing.assert_close(after.agent, before.agent, rtol=0, atol=1e-5)
    torch.testing.assert_close(after.lane, before.lane, rtol=0, atol=1e-5)
