"""The table of histories, beside a plain dictionary of what was seen when."""

from __future__ import annotations

import numpy as np
import pytest

from trajpred.onboard.history import HistoryTable
from trajpred.scenario import Scenario

LENGTH, STEP = 6, 0.1


def add(table: HistoryTable, seen: dict[str, tuple[float, float]], **limits: float) -> list[str]:
    N = len(seen)
    limits = {"fastest": 100.0, "jump_m": 5.0} | limits
    return table.add(
        np.array(list(seen), np.str_),
        np.array(list(seen.values())).reshape(N, 2),
        np.full((N, 3), np.nan),
        np.zeros(N, np.int8),
        **limits,
    )


def test_is_what_was_seen_when() -> None:
    random, table, log = np.random.default_rng(0), HistoryTable(LENGTH, STEP), {}
    now = 0
    for _ in range(60):
        passed = int(random.integers(0, 4))
        now += passed
        table.advance(passed)
        names = [f"t{i}" for i in range(5) if random.random() < 0.4]
        seen = {name: tuple(random.normal(0, 1, 2)) for name in names}
        assert add(table, seen) == []
        log |= {(name, now): place for name, place in seen.items()}
        tracks = table.tracks() if len(table) else None
        kept = {(n, t): p for (n, t), p in log.items() if t > now - LENGTH}
        assert set(table.track_id) == {name for name, _ in kept}
        if tracks is None:
            continue
        tracks.validate()
        found = {
            (str(tracks.track_id[row]), now - LENGTH + 1 + column): tuple(tracks.position[row, column])
            for row, column in np.argwhere(tracks.valid)
        }
        assert found == kept
        ago = dict(zip(table.track_id, table.steps_ago(), strict=True))
        assert ago == {name: now - max(t for n, t in kept if n == name) for name in ago}


@pytest.mark.parametrize(("step_m", "kept"), [(14.9, True), (15.1, False)])
def test_who_moved_farther_than_can_be_is_a_new_track(step_m: float, kept: bool) -> None:
    table = HistoryTable(LENGTH, STEP)
    add(table, {"a": (0, 0), "b": (0, 0)})
    table.advance(1)
    jumped = add(table, {"a": (step_m, 0), "b": (1, 0)})  # allowed: 5 m and 0.1 s at 100 m/s
    assert jumped == ([] if kept else ["a"])
    assert table.tracks().valid[:, -2].tolist() == [kept, True]
    assert table.tracks().valid[:, -1].all()


def test_longer_gaps_allow_more() -> None:
    table = HistoryTable(LENGTH, STEP)
    add(table, {"a": (0, 0)})
    table.advance(3)
    assert add(table, {"a": (30, 0)}) == []
    table.advance(3)
    assert add(table, {"a": (70, 0)}) == ["a"]


def test_what_the_tracker_does_not_give_follows_from_the_positions() -> None:
    table = HistoryTable(LENGTH, STEP)
    for step in range(LENGTH):
        table.advance(1)
        add(table, {"a": (0.0, 1.2 * step)})
    tracks = table.tracks()
    np.testing.assert_allclose(tracks.velocity[0, 1:], [[0, 12.0]] * (LENGTH - 1))
    np.testing.assert_allclose(tracks.heading[0, 1:], np.pi / 2)


def test_who_stood_all_through_the_history_is_what_a_scenario_says() -> None:
    """Without headings a scenario cut to the same steps knows no direction of travel either."""
    table, places = HistoryTable(LENGTH, STEP), [(0.0, 1.2 * min(step, 3)) for step in range(20)]
    for now, place in enumerate(places):
        table.advance(1)
        add(table, {"a": place})
        window = np.array(places[max(0, now + 1 - LENGTH) : now + 1])
        expected = Scenario.from_arrays(window[None], num_observed=len(window)).tracks
        for name in ("heading", "velocity"):
            found = getattr(table.tracks(), name)[:, -len(window) :]
            np.testing.assert_allclose(found, getattr(expected, name), atol=1e-9)
    assert table.tracks().heading[0, -1] == 0


def test_what_it_gives_is_kept() -> None:
    table = HistoryTable(LENGTH, STEP)
    one = np.array(["a"])
    table.add(one, np.zeros((1, 2)), np.array([[1.0, 2.0, 3.0]]), np.array([4], np.int8), fastest=1, jump_m=1)
    tracks = table.tracks()
    assert tracks.heading[0, -1] == 1 and tracks.velocity[0, -1].tolist() == [2, 3]
    assert tracks.object_type.tolist() == [4]
    table.advance(LENGTH)
    assert len(table) == 0
