"""Learning curves show what was logged, and mark the best checkpoint."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from trajpred.viz.curves import PANELS, draw_curves

#: Three epochs of ten steps, validated after the first and the last; focal and scored agents are the same.
ROWS = {
    10 * epoch: {"epoch": float(epoch), "train/loss": 5.0 - epoch}
    | {f"val/{group}/{name}": 3.0 / epoch for group in ("focal", "scored") for name in PANELS if epoch != 2}
    | ({"val/loss": 4.5 - epoch} if epoch != 2 else {})
    for epoch in (3, 1, 2)
}


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    return {str(line.get_label()): [(x, y) for x, y in line.get_xydata()] for line in axes.lines}


def test_every_logged_value_is_drawn_over_its_epoch_and_the_best_one_is_named() -> None:
    loss, *metrics = draw_curves(ROWS, "run", best=10).axes
    assert lines(loss) == {"training 4.00": [(1, 4), (2, 3), (3, 2)], "validation 3.50": [(1, 3.5), (3, 1.5)]}
    assert [axes.get_title("left").rsplit(": ")[-1] for axes in metrics] == list(PANELS)
    for axes in metrics:
        assert lines(axes) == {"focal 3.00": [(1, 3), (3, 1)]}, "the scored agents are no other ones"
        [mark] = axes.collections
        assert mark.get_offsets().tolist() == [[1, 3]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_run_without_validation_has_a_loss_at_most(count: int) -> None:
    rows = {step: {"epoch": row["epoch"], "train/loss": row["train/loss"]} for step, row in ROWS.items()}
    figure = draw_curves(dict(sorted(rows.items())[:count]), best=7)
    [axes] = figure.axes
    assert [len(points) for points in lines(axes).values()] == ([count] if count else [])
    figure.canvas.draw()
