"""Split conformal regions: discs around the endpoints of the modes that hold the truth as often as promised.

The promise needs no trust in the model: fitted on N agents exchangeable with those to come, the region holds
a new one's true position with a probability of at least ``coverage`` and at most ``coverage + 1 / (N + 1)``,
on average over calibration sets (Angelopoulos & Bates 2021, "A Gentle Introduction to Conformal Prediction
and Distribution-Free Uncertainty Quantification"). Agents of one scene depend on each other: fit on one agent
of each scenario where the promise matters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trajpred.errors import DataError, as_array, require
from trajpred.geometry import norm
from trajpred.scenario import OBJECT_TYPES

Floats = NDArray[np.float64]

#: A class with fewer agents than this at a horizon shares the radius of all classes.
MIN_COUNT = 100


def conformal_radius(score: Floats, coverage: float) -> float:
    """The ``⌈(N + 1) coverage⌉``-th smallest of ``score`` ``[N]``; infinite where N is too small to promise.

    Raises:
        DataError: a score is not finite, or ``coverage`` is not between 0 and 1.
    """
    require(0 < coverage < 1, "coverage", f"must lie between 0 and 1, is {coverage}")
    require(bool(np.isfinite(score).all()), "score", "is not finite")
    rank = int(np.ceil((len(score) + 1) * coverage - 1e-9))  # 0.55 * 100 is 55.00000000000001
    return float(np.partition(score, rank - 1)[rank - 1]) if rank <= len(score) else float("inf")


def endpoint_scores(
    trajectory: Floats, target: Floats, valid: NDArray[np.bool_], horizons_s: ArrayLike, step_s: float = 0.1
) -> Floats:
    """Distance from the truth to the nearest of the K modes at each horizon.

    Args:
        trajectory: ``[A, K, F, 2]`` metres.
        target: ``[A, F, 2]`` metres; values where ``valid`` ``[A, F]`` is False are ignored.
        horizons_s: ``[H]`` seconds after the last observed step.
        step_s: seconds between steps.

    Returns:
        ``[A, H]`` metres; NaN where the truth is not known.

    Raises:
        DataError: a horizon lies outside the future.
    """
    step = np.round(np.asarray(horizons_s, np.float64) / step_s).astype(np.int64) - 1
    inside = bool(((step >= 0) & (step < trajectory.shape[2])).all())
    require(inside, "horizons_s", f"must lie within the {trajectory.shape[2]} future steps")
    nearest = norm(trajectory[:, :, step] - target[:, None, step]).min(1)
    return np.where(valid[:, step], nearest, np.nan)


@dataclass(frozen=True)
class ConformalRegions:
    """The radius of the discs around all K modes, for each object type and each of ``H`` horizons.

    Attributes:
        coverage: the promised share.
        horizons_s: ``[H]`` seconds.
        radius: ``[10, H]`` metres by :data:`OBJECT_TYPES`; infinite where nothing can be promised.
        count: ``[10, H]`` int64, agents of the type that were fitted on; too few share one radius.
    """

    coverage: float
    horizons_s: Floats
    radius: Floats
    count: NDArray[np.int64]

    @classmethod
    def fit(
        cls,
        score: Floats,
        object_type: NDArray[np.integer],
        horizons_s: ArrayLike,
        coverage: float = 0.9,
        min_count: int = MIN_COUNT,
    ) -> ConformalRegions:
        """Fit to the scores of agents that the model was not trained on.

        Args:
            score: ``[A, H]`` metres, see :func:`endpoint_scores`; NaN entries are left out.
            object_type: ``[A]`` index into OBJECT_TYPES.
            horizons_s: ``[H]`` seconds.
            coverage: the share to promise, between 0 and 1.
            min_count: a type with fewer agents at a horizon has the radius of all types together.
        """
        horizons = as_array(horizons_s, np.float64, "horizons_s")
        wanted = (len(object_type), len(horizons))
        require(score.shape == wanted, "score", f"must be {wanted}, is {score.shape}")
        known = np.isfinite(score)
        member = object_type == np.arange(len(OBJECT_TYPES))[:, None]  # [10, A]
        count = member.astype(np.int64) @ known.astype(np.int64)
        radius = np.empty(count.shape)
        for (row, column), enough in np.ndenumerate(count >= min_count):
            chosen = known[:, column] & (member[row] if enough else True)
            radius[row, column] = conformal_radius(score[chosen, column], coverage)
        return cls(float(coverage), horizons, radius, count)

    def covered(self, score: Floats, object_type: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether the truth lies in the region: ``[A, H]`` bool of ``score`` ``[A, H]`` (False where NaN)."""
        inside: NDArray[np.bool_] = score <= self.radius[object_type]
        return inside

    def to_json(self) -> str:
        """One JSON object; an infinite radius is null."""
        radius = [[r if np.isfinite(r) else None for r in row] for row in self.radius.tolist()]
        types = zip(OBJECT_TYPES, radius, self.count.tolist(), strict=True)
        rows = {name: {"radius_m": r, "count": n} for name, r, n in types}
        horizons = self.horizons_s.tolist()
        return json.dumps({"coverage": self.coverage, "horizons_s": horizons, "object_types": rows})

    @classmethod
    def from_json(cls, text: str) -> ConformalRegions:
        """The inverse of :meth:`to_json`, to the last bit. Raises: DataError."""
        try:
            record = json.loads(text)
            rows = [record["object_types"][name] for name in OBJECT_TYPES]
            horizons = np.array(record["horizons_s"], np.float64)
            radius = [[np.inf if r is None else r for r in row["radius_m"]] for row in rows]
            shape = (len(OBJECT_TYPES), len(horizons))
            table = np.array(radius, np.float64).reshape(shape)
            count = np.array([row["count"] for row in rows], np.int64).reshape(shape)
            coverage = float(record["coverage"])
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(f"are no conformal regions ({error!r})", field="regions") from None
        require(0 < coverage < 1, "coverage", f"must lie between 0 and 1, is {coverage}")
        require(bool((np.isfinite(horizons) & (horizons > 0)).all()), "horizons_s", "must be positive")
        require(bool((table >= 0).all() and (count >= 0).all()), "object_types", "must not be negative")
        return cls(coverage, horizons, table, count)
