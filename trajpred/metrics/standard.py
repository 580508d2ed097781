"""The metrics that ship with trajpred, each a named function; importing this file registers them.

docs/concepts/metrics.md defines them. Results have a value per agent ``[A]``, or per scene ``[S]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trajpred.metrics.consistency import Matched
from trajpred.metrics.displacement import Errors, missed, of_best, with_brier
from trajpred.metrics.plausibility import FuturesUntil, collision_share
from trajpred.metrics.registry import AHEAD, AVERAGE_ERROR, BRIER, FINAL_ERROR, MISS_RATE, Metric, register

if TYPE_CHECKING:  # tables of results need no torch
    from torch import Tensor

    from trajpred.metrics.compute import Worlds


def min_ade(errors: Errors) -> Tensor:
    """Compute the least average error of the modes."""
    return errors.average.amin(1)


def min_fde(errors: Errors) -> Tensor:
    """Compute the least final error of the modes."""
    return errors.final.amin(1)


def miss_rate(errors: Errors) -> Tensor:
    """Return 1 where the best endpoint is a miss, else 0."""
    return missed(errors.final.amin(1))


def brier_min_fde(errors: Errors) -> Tensor:
    """Compute the least final error plus ``(1 - p)²`` of that mode."""
    return with_brier(errors.final, errors.probability)


def brier_min_ade(errors: Errors) -> Tensor:
    """Compute the least average error plus ``(1 - p)²`` of that mode."""
    return with_brier(errors.average, errors.probability)


def ade_of_best_fde(errors: Errors) -> Tensor:
    """Compute the average error of the mode with the best endpoint."""
    return of_best(errors.final, errors.average)


def average_heading_error(errors: Errors) -> Tensor:
    """Compute the average heading error of the mode with the best endpoint."""
    assert errors.average_heading is not None
    return of_best(errors.final, errors.average_heading)


def final_heading_error(errors: Errors) -> Tensor:
    """Compute the final heading error of the mode with the best endpoint."""
    assert errors.final_heading is not None
    return of_best(errors.final, errors.final_heading)


register(Metric("minADE", min_ade, "Average error", tables=AVERAGE_ERROR))
register(Metric("minFDE", min_fde, "Final error", tables=FINAL_ERROR))
register(Metric("MR", miss_rate, "Share missed by more than 2 m", unit="", tables=MISS_RATE))
register(Metric("brier-minFDE", brier_min_fde, "Final error with Brier score", tables=BRIER))
register(Metric("brier-minADE", brier_min_ade, "Average error with Brier score"))
register(
    Metric(
        "ADE-of-best-FDE",
        ade_of_best_fde,
        "Average error of the mode with the best endpoint",
    )
)
register(
    Metric(
        "average heading error",
        average_heading_error,
        "Average heading error of the mode with the best endpoint",
        unit="rad",
        ks=(6,),
    )
)
register(
    Metric(
        "final heading error",
        final_heading_error,
        "Final heading error of the mode with the best endpoint",
        unit="rad",
        ks=(6,),
        tables=AHEAD,
    )
)


def off_road_probability(until: FuturesUntil) -> NDArray[np.float64]:
    """Sum the probabilities of the modes that leave the road."""
    return until.probability_of("off-road")


def wrong_way_probability(until: FuturesUntil) -> NDArray[np.float64]:
    """Sum the probabilities of the modes that drive against the traffic."""
    return until.probability_of("wrong-way")


def infeasible_probability(until: FuturesUntil) -> NDArray[np.float64]:
    """Sum the probabilities of the modes with infeasible motion."""
    return until.probability_of("infeasible")


def collision_probability(until: FuturesUntil) -> NDArray[np.float64]:
    """Compute the probability of the worlds in which an agent collides."""
    return collision_share(until.futures)


def off_road_share(until: FuturesUntil) -> NDArray[np.float64]:
    """Compute the share of the modes that leave the road."""
    return until.share_of_modes("off-road")


def wrong_way_share(until: FuturesUntil) -> NDArray[np.float64]:
    """Compute the share of the modes that drive against the traffic."""
    return until.share_of_modes("wrong-way")


def infeasible_share(until: FuturesUntil) -> NDArray[np.float64]:
    """Compute the share of the modes with infeasible motion."""
    return until.share_of_modes("infeasible")


register(
    Metric(
        "off-road",
        off_road_probability,
        "Probability of leaving the road",
        unit="",
        kind="plausibility",
    )
)
register(
    Metric(
        "wrong-way",
        wrong_way_probability,
        "Probability of driving against the traffic",
        unit="",
        kind="plausibility",
    )
)
register(
    Metric(
        "infeasible",
        infeasible_probability,
        "Probability of infeasible motion",
        unit="",
        kind="plausibility",
    )
)
register(
    Metric(
        "collision",
        collision_probability,
        "Probability of a collision",
        unit="",
        kind="plausibility",
    )
)
register(
    Metric(
        "off-road futures",
        off_road_share,
        "Share of the futures that leave the road",
        unit="",
        kind="plausibility",
        tables=AHEAD,
    )
)
register(
    Metric(
        "wrong-way futures",
        wrong_way_share,
        "Share of the futures that drive against the traffic",
        unit="",
        kind="plausibility",
        tables=AHEAD,
    )
)
register(
    Metric(
        "infeasible futures",
        infeasible_share,
        "Share of the futures with infeasible motion",
        unit="",
        kind="plausibility",
        tables=AHEAD,
    )
)
register(
    Metric(
        "standing drift",
        FuturesUntil.standing_drift,
        "Mean distance of the futures of standing agents from where they stand",
        kind="plausibility",
        tables=AHEAD,
    )
)


def avg_min_ade(worlds: Worlds) -> Tensor:
    """Compute the least average error of the worlds."""
    return worlds.average.amin(1)


def avg_min_fde(worlds: Worlds) -> Tensor:
    """Compute the least final error of the worlds."""
    return worlds.final.amin(1)


def avg_brier_min_fde(worlds: Worlds) -> Tensor:
    """Compute the least final error of the worlds plus ``(1 - p)²`` of that world."""
    return with_brier(worlds.final, worlds.probability)


def actor_miss_rate(worlds: Worlds) -> Tensor:
    """Return the share of missed agents in the best world."""
    return worlds.missed


def actor_collision_rate(worlds: Worlds) -> Tensor:
    """Return the share of colliding agents in the best world."""
    return worlds.collided


register(Metric("avgMinADE", avg_min_ade, "Average error", kind="world"))
register(Metric("avgMinFDE", avg_min_fde, "Final error", kind="world"))
register(Metric("avgBrierMinFDE", avg_brier_min_fde, "Final error with Brier score", kind="world"))
register(
    Metric(
        "actorMR",
        actor_miss_rate,
        "Share of missed actors",
        unit="",
        kind="world",
        per_actor=True,
    )
)
register(
    Metric(
        "actorCR",
        actor_collision_rate,
        "Share of colliding actors",
        unit="",
        kind="world",
        per_actor=True,
    )
)

register(
    Metric(
        "mode displacement",
        Matched.displacement,
        "Displacement of the modes",
        kind="streaming",
    )
)
register(
    Metric(
        "weighted displacement",
        Matched.weighted_displacement,
        "Displacement of the modes, by probability",
        kind="streaming",
    )
)
register(
    Metric(
        "switches",
        Matched.switched,
        "Switches of the most probable mode",
        unit="",
        kind="streaming",
    )
)
register(
    Metric(
        "probability change",
        Matched.probability_change,
        "Change of the probabilities",
        unit="",
        kind="streaming",
    )
)
