"""What the page holds of attention, and of forecasts without somebody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trajpred.viz.page.codec import encode
from trajpred.viz.page.heard import HEAD_SHARE, SHARE, attention_arrays

from tests.viz.page_file import Page, decode
from trajpred.errors import DataError
from trajpred.forecast import Attention
from trajpred.predictors import load_predictor
from trajpred.predictors.checkpoint import attention_of
from trajpred.predictors.perturbed import road_users, without
from trajpred.scenario import Scenario, TrackCategory
from trajpred.viz.page import write_page


@pytest.fixture(scope="module")
def crowded(sample_scenarios: list[Scenario]) -> Scenario:
    return max(sample_scenarios, key=lambda scenario: len(scenario.tracks) * scenario.has_future)


@pytest.fixture(scope="module")
def attention(crowded: Scenario) -> Attention:
    return attention_of(load_predictor("argoverse2-demo"), [crowded])[0]


def test_shares_come_back(crowded: Scenario, attention: Attention) -> None:
    found = attention_arrays(crowded, attention, 3)
    edges, heads = found["heard3"], found["heads3"]
    A, T = len(attention.track_id), len(crowded.tracks)
    for name in attention.track_id.tolist():
        mine = np.flatnonzero(edges[:, 0] == crowded.tracks.index(name))
        told = np.zeros(T + attention.lane.max() + 1)
        told[edges[mine, 1]] = edges[mine, 2] * SHARE
        meant = np.zeros_like(told)
        shares = attention.shares(name)
        for sender, share in zip(attention.track_id.tolist(), shares, strict=False):
            meant[crowded.tracks.index(sender)] = share
        meant[T + attention.lane] = shares[A:]
        assert np.abs(told - meant).max() <= SHARE / 2 + 1e-6
    judged = crowded.tracks.category >= TrackCategory.SCORED
    assert judged[edges[: len(heads), 0]].all() and not judged[edges[len(heads) :, 0]].any()
    again = heads.mean(axis=1) * HEAD_SHARE
    assert np.abs(again - edges[: len(heads), 2] * SHARE).max() < (HEAD_SHARE + SHARE) / 2
    assert len(encode(found)["data"]) < 30_000, "bytes, in the most crowded scene of the sample"


def test_the_page_holds_both_futures(crowded: Scenario, tmp_path: Path) -> None:
    model = load_predictor("argoverse2-demo")
    page = Page(write_page(tmp_path / "a.html", [crowded], [model], without=["nearest"], progress=False))
    packed, index = page.json("scene-0"), page.json("index")
    removed = road_users(crowded, ["nearest"])
    assert [packed["track_id"][row] for row in packed["removed"]] == removed and index["removes"]
    assert index["heads"] == [[4, 8]] and len(packed["models"]) == len(packed["without"]) == 1
    [less], [seen] = model([without(crowded, removed)]), model([crowded])
    arrays, focal = decode(packed), crowded.tracks.index(crowded.focal_id)
    origin = crowded.tracks.position[focal, crowded.num_observed - 1]
    modes = arrays["mode1"].reshape(less.trajectory.shape)
    np.testing.assert_allclose(modes * 0.01, less.trajectory - origin, atol=0.0051)
    assert crowded.tracks.index(removed[0]) not in packed["without"][0]["tracks"]
    means = [
        (one.probability[row, :, None] * one.trajectory[row, :, -1]).sum(0)
        for one in (seen, less)
        for row in one.rows(np.array([crowded.focal_id]))
    ]
    row = packed["without"][0]["tracks"].index(focal)
    assert packed["without"][0]["moved_m"][row] == pytest.approx(np.hypot(*(means[1] - means[0])), abs=0.006)


def test_one_road_user_without_a_map_hears_nobody(tmp_path: Path) -> None:
    path = np.arange(110)[:, None] * np.array([0.5, 0.0])
    alone = Scenario.from_arrays(path[None], num_observed=50)
    model = load_predictor("argoverse2-demo")
    page = Page(write_page(tmp_path / "a.html", [alone], [model], progress=False))
    arrays = decode(page.json("scene-0"))
    assert arrays["heard0"].shape == (0, 3) and arrays["heads0"].shape == (0, 4 * 8)


def test_what_has_no_attention_is_told_so(crowded: Scenario, tmp_path: Path) -> None:
    baseline = load_predictor("lane_following")
    with pytest.raises(DataError, match=r"default encoder.*not by lane_following"):
        attention_of(baseline, [crowded])
    page = Page(write_page(tmp_path / "a.html", [crowded], [baseline], progress=False))
    assert page.json("index")["heads"] == [None] and not page.json("index")["removes"]
    assert "heard0" not in decode(page.json("scene-0"))


def test_who_cannot_be_left_out(crowded: Scenario, tmp_path: Path) -> None:
    path, baseline = tmp_path / "a.html", load_predictor("constant_velocity")
    for name, told in ((crowded.focal_id, "focal"), ("nobody", "nobody")):
        with pytest.raises(DataError, match=told):
            write_page(path, [crowded], [baseline], without=[name], progress=False)
    with pytest.raises(DataError, match="needs a model"):
        write_page(path, [crowded], without=["nearest"], progress=False)
    assert not path.exists()
