"""The law that fits a recipe's errors over its training scenes, against one that is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.conftest import rejects
from tools.scaling import draw, fit, main, table
from trajpred.evaluation import Evaluation, write_results

FULL = 8_000
FACTOR = 9.0
EXPONENT = 0.21
SHARES = (0.125, 0.25, 0.5, 1.0)
LEVELS = [FACTOR * (share * FULL) ** -EXPONENT for share in SHARES]


def result(share: float, spread: float = 0.0, name: str = "s") -> Evaluation:
    """A model trained on ``share`` of the scenes, with errors spread around a power law."""
    random = np.random.default_rng(1)
    count = random.integers(0, 5, 300)
    values = FACTOR * (share * FULL) ** -EXPONENT * np.exp(spread * random.normal(size=300))
    names = [f"{name}{i}" for i in range(300)]
    rows = pa.table({"scenario_id": names, "count": count, "ids": count, "minFDE6": values})
    columns = dict.fromkeys(("focal", "moving"), rows.filter(pc.field("count") > 0))
    training = {"steps": 500, "batch_size": 16, "epoch": 1 / share}
    return Evaluation(f"share {share}", "val", 300, {}, {"focal": {"count": 300}}, columns, training)


def results(spread: float = 0.0) -> list[Evaluation]:
    """Return a result for each share."""
    return [result(share, spread) for share in SHARES]


def test_law_is_that_of_the_errors() -> None:
    law = fit(results(), 200_000)
    assert law.exponent.mean == pytest.approx(EXPONENT)
    assert law.predicted[:, -1] == pytest.approx([FACTOR * 200_000**-EXPONENT] * 3)
    assert (law.at[0], law.at[-1]) == pytest.approx((1_000, 200_000))
    assert [error.mean for error in law.errors] == pytest.approx(LEVELS)


def test_intervals_cover_scenes_that_spread() -> None:
    # The errors of a scene move together in all results, so the exponent is known well, the level is not.
    law = fit(results(0.5), 200_000)
    low, high = law.predicted[1:, -1] / law.predicted[0, -1]
    assert 0.85 < low < 0.97 < 1.03 < high < 1.15
    assert law.exponent.high - law.exponent.low < 1e-6


def test_other_scenes_and_too_few_sizes_are_refused() -> None:
    rejects("three numbers of training scenes", lambda: fit([result(0.25), result(0.5), result(0.5)], 9))
    rejects("same validation scenes", lambda: fit([result(0.25), result(0.5), result(1.0, name="t")], 9))
    rejects("'scenes': must be at least those of the results, 8,000", lambda: fit(results(), 7_999))


def test_command_prints_rows_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for share in SHARES:
        path = tmp_path / f"{share}.json"
        write_results(path, result(share, 0.3))
        paths.append(path)
    main(*paths[::-1], out=tmp_path / "law.png")
    printed = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in printed.splitlines()[2:8]]
    assert rows == ["1,000", "2,000", "4,000", "8,000", "205,942", "exponent"]
    assert (tmp_path / "law.png").stat().st_size > 10_000
    laws = {"focal": fit(results(), 9_000)}
    figure = draw(results(), laws)
    assert "0.21" in figure.axes[0].get_legend().get_texts()[0].get_text()
    assert table(results(), laws).count("\n") == 7
