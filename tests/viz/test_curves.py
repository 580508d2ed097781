"""Learning curves show what was logged, and mark the best checkpoint."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from trajpred.viz.curves import PANELS, draw_curves


def logged(epoch: int, validated: bool) -> dict[str, float]:
    """The values logged after an epoch."""
    row = {"epoch": float(epoch), "train/loss": 5.0 - epoch}
    if not validated:
        return row
    row["val/loss"] = 4.5 - epoch
    for name in PANELS:
        row[f"val/focal/{name}6"] = 3.0 / epoch
        row[f"val/scored/{name}6"] = 3.0 / epoch
    return row


#: Three epochs of ten steps, validated after the first and the last; focal and scored agents are the same.
ROWS = {30: logged(3, validated=True), 10: logged(1, validated=True), 20: logged(2, validated=False)}


def lines(axes: Axes) -> dict[str, list[list[float]]]:
    return {str(line.get_label()): line.get_xydata().tolist() for line in axes.lines}


def test_every_logged_value_is_drawn_over_its_epoch_and_the_best_one_is_named() -> None:
    figure = draw_curves(ROWS, "run", best=10)
    assert figure.get_suptitle() == "run: numbers are those of the best checkpoint, after 1 epochs"
    loss, *metrics = figure.axes
    assert lines(loss) == {"training 4.00": [[1, 4], [2, 3], [3, 2]], "validation 3.50": [[1, 3.5], [3, 1.5]]}
    assert loss.get_title("left") == "Loss"
    entries = [entry.get_text() for entry in loss.get_legend().get_texts()]
    assert entries == ["training 4.00", "validation 3.50"]
    assert [axes.get_title("left").rsplit(": ")[-1] for axes in metrics] == [f"{name}6" for name in PANELS]
    for axes in metrics:
        assert lines(axes) == {"focal 3.00": [[1, 3], [3, 1]]}, "the scored agents are no other ones"
        assert axes.get_xticks().tolist() == [1, 3], "where validations are"
        [mark] = axes.collections
        assert mark.get_offsets().tolist() == [[1, 3]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_run_without_validation_has_a_loss_at_most(count: int) -> None:
    rows = {10 * epoch: logged(epoch, validated=False) for epoch in range(1, count + 1)}
    figure = draw_curves(rows, best=7)
    [axes] = figure.axes
    lengths = [len(points) for points in lines(axes).values()]
    assert lengths == ([count] if count else [])
    figure.canvas.draw()
