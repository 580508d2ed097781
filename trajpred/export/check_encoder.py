"""Compare the encoder of a bundle with the PyTorch encoder it was exported from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from trajpred.errors import DataError, require
from trajpred.export.precision import PrecisionRule
from trajpred.graph.config import FeatureConfig
from trajpred.graph.scene_graph import build_batch
from trajpred.lane_map import LaneMap
from trajpred.model import Forecaster
from trajpred.onboard.encoder import OnboardEncoder
from trajpred.progress import progress_bar
from trajpred.scenario import Scenario, Tracks
from trajpred.scenario_batch import ScenarioBatch


@dataclass(frozen=True)
class TokenCase:
    """The comparison on one scene.

    Attributes:
        name: the scenario's id, and how it was changed.
        agents, lanes: number of each in the model's input.
        largest: largest relative difference of a token.
    """

    name: str
    agents: int
    lanes: int
    largest: float

    @property
    def difference(self) -> str:
        return f"{self.largest:.1g}"


@dataclass(frozen=True)
class TokenCheck:
    """The result of a comparison.

    The relative difference of a token is the length of the difference, divided by the root mean square of
    the lengths of the scene's tokens.

    Attributes:
        tolerance: limit on every relative difference.
        cases: one per scene.
    """

    tolerance: float
    cases: tuple[TokenCase, ...]

    def summary(self) -> str:
        """Describe the result in one sentence."""
        largest = max(case.largest for case in self.cases)
        return f"all tokens are within {largest:.1g} of PyTorch's, relative (limit {self.tolerance:g})"


def check_encoder(
    bundle: Path,
    model: Forecaster,
    scenarios: Sequence[Scenario],
    rule: PrecisionRule,
    progress: bool = False,
) -> TokenCheck:
    """Compare tokens, poses and order of the rows with those of ``model``.

    Args:
        scenarios: the first one is also compared with its focal agent alone, without a map, and both.

    Raises: DataError that names the limit that is exceeded.
    """
    require(bool(scenarios), "scenarios", "are required to check a bundle")
    encoder = OnboardEncoder(bundle)
    scenes, cases = list(variants(scenarios)), []
    with limited(model, encoder.bundle.features):
        for name, scenario in progress_bar(scenes, "comparing with PyTorch", unit=" scenes", shown=progress):
            cases.append(_compare(name, scenario, model, encoder))
    result = TokenCheck(rule.token, tuple(cases))
    largest = max(case.largest for case in cases)
    if not largest <= rule.token:
        excess = f"a token differs by {largest:.3g}, relative; the limit is {rule.token:g}"
        raise DataError(f"the bundle differs from the model: {excess}", file=bundle.name)
    return result


def _compare(name: str, scenario: Scenario, model: Forecaster, encoder: OnboardEncoder) -> TokenCase:
    batch = build_batch([scenario], model.scene)
    with torch.inference_mode():
        expected = model.encoder.encode(batch)
    found = encoder.encode(ScenarioBatch.of([scenario]))
    agents, lanes = found.agent_valid, found.lane_valid
    same = np.array_equal(batch["agent"].track_id, found.track_id[agents])
    if not same or not np.array_equal(batch["lane"].row.numpy(), found.lane_row[lanes]):
        raise DataError("the bundle encodes other agents or lanes than the model", field="track_id")
    tokens = np.concatenate((found.agent[agents], found.lane[lanes]))
    return TokenCase(name, int(agents.sum()), int(lanes.sum()), _relative(expected.nodes.numpy(), tokens))


def _relative(expected: NDArray[np.float32], found: NDArray[np.float32]) -> float:
    length = np.sqrt((np.linalg.norm(expected, axis=1) ** 2).mean())
    return float(np.linalg.norm(found - expected, axis=1).max() / length)


@contextmanager
def limited(model: Forecaster, features: FeatureConfig) -> Iterator[None]:
    """Let ``model`` select agents and lanes by ``features``: fixed sizes of a bundle limit PyTorch, too."""
    scene = model.scene
    model.scene = replace(scene, features=features)
    try:
        yield
    finally:
        model.scene = scene


def variants(scenarios: Sequence[Scenario]) -> Iterator[tuple[str, Scenario]]:
    """Yield the scenarios, then the edge cases of the first."""
    for scenario in scenarios:
        yield scenario.scenario_id, scenario
    first = scenarios[0]
    row = slice(first.focal, first.focal + 1)
    alone = replace(first, tracks=Tracks(**{name: x[row] for name, x in vars(first.tracks).items()}))
    yield f"{first.scenario_id}, focal agent alone", alone
    yield f"{first.scenario_id}, no map", replace(first, map=LaneMap())
    yield f"{first.scenario_id}, focal agent alone, no map", replace(alone, map=LaneMap())
