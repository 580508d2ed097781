"""Random variations of training scenes. NumPy only, applied before scenes become graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.data.batch import ScenarioBatch
from trajpred.data.geometry import last_step, unit_vector
from trajpred.data.lane_map import LANE_TYPES
from trajpred.data.motion import add_noise, correlated, derive_states
from trajpred.data.ragged import rank_in_scene
from trajpred.data.tracks import UNKNOWN_TYPE, TrackCategory
from trajpred.errors import require
from trajpred.features.agents import AgentFeatures
from trajpred.features.config import ATTRIBUTES, BOUNDARIES, VALID, FeatureConfig
from trajpred.features.lanes import LaneFeatures, topology_among
from trajpred.features.scene_graph import SceneFeatures, mirrored


class _Draw(IntEnum):
    """Keys of independent random numbers."""

    DROP_AGENT = 0
    DROP_LANE = 1
    TRUNCATE = 2
    FIRST_STEP = 3
    MIRROR = 4
    TIME = 5
    NO_MAP = 6
    ALONE = 7
    GAP = 8
    GAP_END = 9
    GAP_LENGTH = 10
    UNKNOWN = 11
    NOISY = 12
    NOISE_SIZE = 13
    SLOW = 14
    DERIVED = 15
    NOISE_LENGTH = 16
    NOISE_ANGLE = 17


#: The longest gap in a history, as a fraction of its steps.
_LONGEST_GAP = 0.2
#: Least recorded future (s) after a moved forecast time: if long histories always had short recorded futures,
#: a model would learn that.
_RECORDED_S = 2.0
#: Least standard deviation (m) of noise; less makes no difference.
_LEAST_NOISE_M = 0.03


def hashed(*keys: ArrayLike) -> NDArray[np.uint64]:
    """Hash the integer ``keys`` (broadcast, order matters) into well mixed 64-bit numbers.

    Source: the finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
    generators"), once per key.
    """
    state = np.zeros(1, np.uint64)
    for key in keys:
        # Convert via int64, to accept negative keys.
        state = state + np.uint64(0x9E3779B97F4A7C15) + np.asarray(key).astype(np.int64).view(np.uint64)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def uniform(*keys: ArrayLike) -> NDArray[np.float64]:
    """Draw numbers in [0, 1) that depend only on the integer ``keys`` (broadcast)."""
    return (hashed(*keys) >> np.uint64(11)) * np.float64(2.0**-53)


def normal(*keys: ArrayLike) -> NDArray[np.float64]:
    """Draw pairs ``[..., 2]`` of standard normal numbers that depend only on the integer ``keys``.

    Source: Box and Muller 1958, "A note on the generation of random normal deviates".
    """
    length = np.sqrt(-2.0 * np.log1p(-uniform(*keys, _Draw.NOISE_LENGTH)))
    angle = 2.0 * np.pi * uniform(*keys, _Draw.NOISE_ANGLE)
    return length[..., None] * unit_vector(angle)


@dataclass(frozen=True)
class AugmentConfig:
    """Random variations of training scenes; the default is none.

    Attributes:
        drop_agents: share of the agents to omit; focal and scored agents always stay.
        drop_lanes: share of the lanes to omit.
        truncate_history: probability that an agent's history before a random step is masked.
        gap: probability that an agent's history has a gap of random length, up to a fifth of all steps.
        mirror: probability that a scene is reflected, which exchanges left and right.
        no_agents: probability that a scene has only its focal and scored agents.
        no_map: probability that a scene has no map.
        unknown: probability, for each attribute that some data lack
            (:data:`~trajpred.features.config.ATTRIBUTES`), that a scene lacks it; and also that a scene lacks
            all of them.
        earlier_s: the forecast is made up to this many seconds earlier, in whole steps, uniformly; later
            recorded steps are the labels.
        later_s: the forecast is made up to this many seconds later.
        noise: probability that a scene's observed positions are noisy like a tracker's; labels stay true.
        noise_m: largest standard deviation of the noise in metres; each scene's is drawn log-uniformly, so
            most are small.
        slow_noise: probability that a scene's noise is correlated over a second, like a filter's.
        derived_states: probability that a scene's observed headings and velocities are derived from its
            (possibly noisy) positions.
    """

    drop_agents: float = 0.0
    drop_lanes: float = 0.0
    truncate_history: float = 0.0
    gap: float = 0.0
    mirror: float = 0.0
    no_agents: float = 0.0
    no_map: float = 0.0
    unknown: float = 0.0
    earlier_s: float = 0.0
    later_s: float = 0.0
    noise: float = 0.0
    noise_m: float = 1.0
    slow_noise: float = 0.3
    derived_states: float = 0.0

    def __post_init__(self) -> None:
        """Raise :class:`DataError` about the first value that is out of range."""
        for name, value in vars(self).items():
            if name.endswith("_s"):
                valid = 0 <= value < math.inf
                kind = "0 or a number of seconds"
            elif name.endswith("_m"):
                valid = _LEAST_NOISE_M <= value < math.inf
                kind = f"a number of metres, at least {_LEAST_NOISE_M}"
            else:
                valid = 0 <= value <= 1
                kind = "0 to 1"
            require(valid, f"augment.{name}", f"must be {kind}")


def vary_recordings(
    batch: ScenarioBatch, config: AugmentConfig, features: FeatureConfig, keys: NDArray[np.int64]
) -> ScenarioBatch:
    """Vary the recordings; each variation depends only on the recording's number in ``keys`` ``[S]``.

    The time of the forecast moves: future becomes history, or the reverse. Scenes whose focal agent would
    have no history, or less than :data:`_RECORDED_S` of recorded future, keep their time. Some scenes lose
    their map, and some get a tracker's noise.
    """
    return _disturbed(_moved(batch, config, features, keys), config, keys)


def _moved(
    batch: ScenarioBatch, config: AugmentConfig, features: FeatureConfig, keys: NDArray[np.int64]
) -> ScenarioBatch:
    """Leave out some maps, and move the times of the forecasts."""
    if config.no_map:
        batch = batch.without_map(uniform(keys, _Draw.NO_MAP) < config.no_map)
    if not config.earlier_s and not config.later_s:
        return batch
    earliest = (config.earlier_s / batch.step_s + 0.1).astype(np.int64)
    latest = (config.later_s / batch.step_s + 0.1).astype(np.int64)
    moves = earliest + latest + 1  # in steps, with that of no step
    later = (uniform(keys, _Draw.TIME) * moves).astype(np.int64) - earliest
    now = (batch.num_observed + later)[:, None]
    focal_valid = batch.tracks.valid[batch.focal]
    step = np.arange(focal_valid.shape[1])
    has_history = (focal_valid & (step < now)).any(1)
    labelled = focal_valid & (step >= now) & (step < batch.recorded[:, None])
    has_future = labelled.sum(1) * batch.step_s > _RECORDED_S - batch.step_s / 2
    later = np.where(has_history & has_future, later, 0)
    return batch.window(features.history or None, features.future or None, later)


def _disturbed(batch: ScenarioBatch, config: AugmentConfig, keys: NDArray[np.int64]) -> ScenarioBatch:
    """Add noise to the observed positions, and derive headings and velocities from positions."""
    if not config.noise and not config.derived_states:
        return batch
    tracks = batch.tracks
    scene = batch.track_scene
    step_s = float(batch.step_s[0])
    if config.noise:
        is_noisy = uniform(keys, _Draw.NOISY) < config.noise
        ratio = config.noise_m / _LEAST_NOISE_M
        size = np.where(is_noisy, _LEAST_NOISE_M * ratio ** uniform(keys, _Draw.NOISE_SIZE), 0.0)
        is_slow = uniform(keys, _Draw.SLOW) < config.slow_noise
        rank = rank_in_scene(scene)
        noise = normal(keys[scene][:, None], rank[:, None], np.arange(batch.num_observed))
        noise = np.where(is_slow[scene][:, None, None], correlated(noise, step_s), noise)
        tracks = add_noise(tracks, size[scene][:, None, None] * noise)
    if config.derived_states:
        is_derived = (uniform(keys, _Draw.DERIVED) < config.derived_states)[scene]
        derived = derive_states(tracks, batch.num_observed, step_s)
        velocity = np.where(is_derived[:, None, None], derived.velocity, tracks.velocity)
        heading = np.where(is_derived[:, None], derived.heading, tracks.heading)
        tracks = replace(tracks, velocity=velocity, heading=heading)
    return replace(batch, tracks=tracks)


def augment(scenes: SceneFeatures, config: AugmentConfig, keys: NDArray[np.int64]) -> SceneFeatures:
    """Vary ``scenes``; each variation depends only on the scene's number in ``keys`` ``[S]``."""

    def draw(scene: NDArray[np.int64], purpose: _Draw) -> NDArray[np.float64]:
        return uniform(keys[scene], purpose, rank_in_scene(scene))

    scenes = _leave_out(scenes, config, keys)
    agents = scenes.agents
    chance = draw(agents.scene, _Draw.TRUNCATE)
    first_step = draw(agents.scene, _Draw.FIRST_STEP)
    agents = _truncate(agents, config, chance, first_step)
    if config.gap:
        chance = draw(agents.scene, _Draw.GAP)
        end = draw(agents.scene, _Draw.GAP_END)
        length = draw(agents.scene, _Draw.GAP_LENGTH)
        agents = _add_gaps(agents, config, chance, end, length)
    scored = agents.category >= TrackCategory.SCORED
    alone = (uniform(keys, _Draw.ALONE) < config.no_agents)[agents.scene]
    stays = draw(agents.scene, _Draw.DROP_AGENT) >= config.drop_agents
    keep = scored | (~alone & stays)
    agents = AgentFeatures(**{name: x[keep] for name, x in vars(agents).items()})
    lanes = scenes.lanes
    lanes = _take_lanes(lanes, draw(lanes.scene, _Draw.DROP_LANE) >= config.drop_lanes)
    scenes = replace(scenes, agents=agents, lanes=lanes)
    return mirrored(scenes, uniform(keys, _Draw.MIRROR) < config.mirror)


def _leave_out(scenes: SceneFeatures, config: AugmentConfig, keys: NDArray[np.int64]) -> SceneFeatures:
    """Make attributes unknown: each on its own in some scenes, and all together in others."""
    if not config.unknown:
        return scenes
    # One draw for each attribute, and a last one for all attributes together.
    purposes = np.arange(len(ATTRIBUTES) + 1)
    draws = uniform(keys[:, None], _Draw.UNKNOWN, purposes) < config.unknown
    by_attribute = draws[:, :-1] | draws[:, -1:]
    lacks = dict(zip(ATTRIBUTES, by_attribute.T, strict=True))
    agents = scenes.agents
    object_type = np.where(lacks["classes"][agents.scene], UNKNOWN_TYPE, agents.object_type)
    agents = replace(agents, object_type=object_type)
    return replace(scenes, agents=agents, lanes=_leave_out_of_lanes(scenes.lanes, lacks))


def _leave_out_of_lanes(lanes: LaneFeatures, lacks: dict[str, NDArray[np.bool_]]) -> LaneFeatures:
    """Leave out crossings, boundaries, marks and lane types where ``lacks`` ``[S]`` says so."""
    is_crossing = lanes.kind == len(LANE_TYPES)
    lanes = _take_lanes(lanes, ~(is_crossing & lacks["crossings"][lanes.scene]))
    is_lane = lanes.kind != len(LANE_TYPES)  # crossings have boundaries of their own
    points = lanes.points.copy()
    points[is_lane & lacks["boundaries"][lanes.scene], :, BOUNDARIES] = 0.0
    lacks_marks = is_lane & lacks["marks"][lanes.scene]
    lacks_type = is_lane & lacks["lane_types"][lanes.scene]
    return replace(
        lanes,
        points=points,
        marks=np.where(lacks_marks[:, None], 0, lanes.marks),
        kind=np.where(lacks_type, 0, lanes.kind),
    )


def _take_lanes(lanes: LaneFeatures, keep: NDArray[np.bool_]) -> LaneFeatures:
    """Return the lanes to ``keep`` ``[L]``, with the topology among them."""
    kept = {name: x[keep] for name, x in vars(lanes).items() if not name.startswith("topology")}
    topology, kind = topology_among(np.flatnonzero(keep), lanes.topology, lanes.topology_kind, len(keep))
    return LaneFeatures(**kept, topology=topology, topology_kind=kind)


def _truncate(
    agents: AgentFeatures, config: AugmentConfig, chance: NDArray[np.float64], where: NDArray[np.float64]
) -> AgentFeatures:
    """Mask the steps before a random step; the last tenth and the last observed state always stay."""
    T = agents.history.shape[1]
    last = last_step(agents.history[..., VALID] > 0)
    first = np.floor(where * max(1, T - T // 10))
    first = np.where(chance < config.truncate_history, np.minimum(first, last), 0)
    visible = np.arange(T) >= first[:, None]
    return replace(agents, history=agents.history * visible[..., None].astype(np.float32))


def _add_gaps(
    agents: AgentFeatures,
    config: AugmentConfig,
    chance: NDArray[np.float64],
    where: NDArray[np.float64],
    length: NDArray[np.float64],
) -> AgentFeatures:
    """Mask a run of steps; half of the gaps end right before the last observed state, which always stays."""
    T = agents.history.shape[1]
    last = last_step(agents.history[..., VALID] > 0)
    end = np.where(where < 0.5, last, np.floor((2 * where - 1) * last))[:, None]
    start = end - np.ceil(length * _LONGEST_GAP * T)[:, None]
    steps = np.arange(T)
    hidden = (steps >= start) & (steps < end) & (chance < config.gap)[:, None]
    return replace(agents, history=agents.history * ~hidden[..., None])
