"""Edited scenarios: what an edit does is a closed form, and the server refuses all else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from tests.conftest import rejects
from tests.scenes import assert_same_forecasts
from tests.viz.scenes import OBSERVED, make_map, make_scenario
from trajpred.data.lane_map import LaneMap
from trajpred.data.scenario import Scenario
from trajpred.predictors import Predictor, load_predictor
from trajpred.predictors.perturbations import without
from trajpred.viz.explore import apply, at_step, scenario_on
from trajpred.viz.explore.server import MAX_BODY, Explorer, Server

NOW = OBSERVED - 1


def test_no_edit_changes_nothing_and_removed_users_are_left_out(
    model: Predictor, real_scene: Scenario
) -> None:
    """To the last bit, although an edited scenario has no future."""
    other = str(real_scene.tracks.track_id[real_scene.tracks.valid[:, 40:60].all(axis=1)][-1])
    changed = apply(real_scene, {"removed": [other]})
    assert not changed.tracks.valid[:, changed.num_observed :].any()
    for edits in {}, {"moved": {}, "removed": [], "added": [], "lanes": []}:
        assert_same_forecasts(model([apply(real_scene, edits)]), model([real_scene]))
    assert_same_forecasts(model([changed]), model([without(real_scene, [other])]))


def test_poses_move_the_history_rigidly_and_speeds_stretch_it() -> None:
    scene = make_scenario()
    tracks = scene.tracks
    car, walker = tracks.index("car"), tracks.index("walker")
    pose = {"x": 3.0, "y": -1.0, "turn": np.pi / 2, "speed": 4.0}
    changed = apply(scene, {"moved": {"car": pose, "walker": {"speed": 0.5}}}).tracks
    before, after = tracks.position[car, :OBSERVED], changed.position[car, :OBSERVED]
    np.testing.assert_allclose(after[NOW], before[NOW] + [3.0, -1.0])
    ratio = 4.0 / np.hypot(8.0, 0.5)
    left = (before - before[NOW])[:, ::-1] * [-1, 1]
    np.testing.assert_allclose(after - after[NOW], ratio * left, atol=1e-6)
    np.testing.assert_allclose(np.hypot(*changed.velocity[car, NOW]), 4.0)
    np.testing.assert_allclose(changed.heading[car, NOW], tracks.heading[car, NOW] + np.pi / 2)
    assert np.hypot(*changed.velocity[walker, NOW]) == pytest.approx(0.5)
    np.testing.assert_array_equal(changed.valid[:, :OBSERVED], tracks.valid[:, :OBSERVED])
    others = [tracks.index(name) for name in ("AV", "bus", "bike")]
    np.testing.assert_array_equal(changed.position[others, :OBSERVED], tracks.position[others, :OBSERVED])


def test_standing_and_added_road_users_came_straight_ahead() -> None:
    position = np.full((1, 30, 2), [5.0, 7.0])
    parked = Scenario.from_arrays(position, num_observed=20, heading=np.full((1, 30), np.pi / 2))
    car = {"object_type": "pedestrian", "x": 1.0, "y": 2.0, "heading": np.pi, "speed": 1.5}
    changed = apply(parked, {"moved": {"0": {"speed": 6.0}}, "added": [car]}).tracks
    ago = 0.1 * np.arange(-19, 1)
    np.testing.assert_allclose(changed.position[0, :20], np.stack((0 * ago + 5, 7 + 6 * ago), -1), atol=1e-9)
    np.testing.assert_allclose(
        changed.position[1, :20], np.stack((1 - 1.5 * ago, 0 * ago + 2), -1), atol=1e-9
    )
    assert changed.track_id.tolist() == ["0", "added 1"]


def test_lanes_are_taken_away() -> None:
    scene = make_scenario(map=make_map())
    changed = apply(scene, {"lanes": ["1"]})
    assert changed.map.lane_id.tolist() == [0]
    assert len(changed.map.crossing_id) == len(changed.map.drivable_area_id) == 1
    alone = scenario_on(changed.map, "road")
    assert alone.tracks.position[0, -1] == pytest.approx(make_map().centerline[0][1])
    rejects("has no lanes", lambda: scenario_on(LaneMap(), "nowhere"))


def test_an_earlier_time_predicts_what_was_predicted_then(model: Predictor, real_scene: Scenario) -> None:
    then = at_step(real_scene, 38)
    assert_same_forecasts(model([then]), model([real_scene.window(later=-12)]), 2e-3, 2e-3)
    for observed in 0, 51:
        rejects("must be 1 to 50 steps", at_step, real_scene, observed)


#: Edits that cannot be applied, and what the sentence must contain.
WRONG: list[tuple[Any, str]] = [
    (5, "must be an object"),
    ({"moves": {}}, "'moves', none of moved, removed"),
    ({"moved": ["car"]}, "must be a dict"),
    ({"moved": {"car": 5}}, "must be an object"),
    ({"moved": {"car": {"z": 1}}}, "'z', none of x, y, turn"),
    ({"moved": {"car": {"x": "1"}}}, "must be a number, is '1'"),
    ({"moved": {"car": {"x": True}}}, "must be a number, is True"),
    ({"moved": {"car": {"x": None}}}, "field 'x': must be a number"),
    ({"moved": {"car": {"x": float("nan")}}}, "beyond what can be edited: nan"),
    ({"moved": {"car": {"speed": -1}}}, "beyond what can be edited: -1"),
    ({"moved": {"nobody": {}}}, "'nobody' is not in this scenario"),
    ({"removed": [["car"]]}, "must be a list of str"),
    ({"removed": ["car"]}, "focal one"),
    ({"added": [{"object_type": "vehicle", "x": 1}]}, "field 'y': must be a number"),
    ({"added": [{"object_type": "vehicle", "x": 1, "y": 1, "speed": None}]}, "'speed': must be a number"),
    ({"added": [{"object_type": "ufo", "x": 1, "y": 1}]}, "is 'ufo', none of vehicle"),
    ({"added": [{"object_type": "vehicle", "x": 1, "y": 1}] * 101}, "at most 100"),
    ({"lanes": ["17"]}, "'17' is not in the map"),
]


@pytest.mark.parametrize(("edits", "sentence"), WRONG)
def test_wrong_edits_are_named(edits: Any, sentence: str) -> None:
    assert sentence in str(rejects("", apply, make_scenario(map=make_map()), edits))


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    names = ["constant_velocity", "lane_following"]
    reading = "from tests.viz.scenes import make_map, make_scenario", "make_scenario(map=make_map())"
    scene = make_scenario(map=make_map())
    return Explorer([scene], {name: load_predictor(name) for name in names}, lambda name: reading)


@pytest.fixture(scope="module")
def server(explorer: Explorer) -> Iterator[Server]:
    with Server(explorer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


EDITS = {"moved": {"car": {"x": 2.0, "y": 1.0}}, "removed": ["bus"], "lanes": ["1"]}
ASKED = {"scene": "scenario", "observed": OBSERVED, "edits": EDITS}


def test_answers_are_the_forecasts_of_the_edited_scenario(
    explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = explorer.answer(ASKED)
    scene = make_scenario(map=make_map())
    changed = apply(scene, EDITS)
    origin = scene.tracks.position[0, NOW]
    for packed, predictor in zip(answer["without"], explorer.predictors.values(), strict=True):
        [forecast] = predictor([changed])
        found = np.stack([np.cumsum(packed[axis], axis=-1) for axis in "xy"], axis=-1) * 0.01
        np.testing.assert_allclose(found, forecast.trajectory - origin, atol=0.0051)
        assert [answer["track_id"][row] for row in packed["tracks"]] == forecast.track_id.tolist()
    constant = answer["without"][0]
    assert constant["shift_m"][constant["tracks"].index(0)] == pytest.approx(np.hypot(2, 1), abs=0.006)
    assert {"1" in valid[OBSERVED:] for valid in answer["valid"]} == {False}
    assert [answer["track_id"][row] for row in answer["removed"]] == ["bus"]
    recorded = explorer.answer(ASKED | {"edits": {}, "models": True})
    assert recorded["models"][0]["metrics"][0] is not None
    names: dict[str, Any] = {}
    exec(answer["script"], names)
    np.testing.assert_array_equal(names["forecast"].trajectory, forecast.trajectory)
    assert len(list(tmp_path.iterdir())) == 2


def ask(server: Server, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Return the status and the text or JSON of an answer."""
    given = {"Host": f"127.0.0.1:{server.server_port}", "X-Token": server.explorer.token}
    sent = {name: value for name, value in (given | headers).items() if value}
    try:
        with urlopen(Request(f"http://127.0.0.1:{server.server_port}{path}", body, sent)) as answer:
            text = answer.read().decode()
            return answer.status, text if "html" in answer.headers["Content-Type"] else json.loads(text)
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_server_answers_its_own_page_alone(server: Server) -> None:
    """Bad requests get one sentence and change nothing."""
    page = "/" + server.url.partition("/?")[2].join(["?", ""])
    body = json.dumps(ASKED).encode()
    good = ask(server, "/forecast", body)
    assert good[0] == 200
    assert ask(server, page)[1] == server.explorer.page
    port = server.server_port
    refused: list[tuple[int, str, bytes | None, dict[str, str]]] = [
        (403, "/", None, {}),
        (403, "/?token=x", None, {}),
        (403, page, None, {"Host": f"evil.example:{port}"}),
        (403, "/forecast", body, {"Host": f"evil.example:{port}"}),
        (403, "/forecast", body, {"Origin": "http://evil.example"}),
        (403, "/forecast", body, {"X-Token": "é"}),
        (404, f"/etc/passwd{page[1:]}", None, {}),
        (404, "/other", body, {}),
        (403, "//[x", None, {}),
        (413, "/forecast", b"0" * (MAX_BODY + 1), {}),
        (413, "/forecast", b"0" * (16 * MAX_BODY), {}),
        (403, "/forecast", b"0" * (16 * MAX_BODY), {"X-Token": "x"}),
        (404, "/other", b"0" * (16 * MAX_BODY), {}),
        (413, "/forecast", body, {"Content-Length": "-1"}),
        (400, "/forecast", b"{", {}),
        (400, "/forecast", b"\xff", {}),
        (400, "/forecast", b"[" * 100_000, {}),
        (400, "/forecast", b"9" * 10_000, {}),
        (400, "/forecast", b"[]", {}),
    ]
    wrong = [{"scene": "../scenario"}, {"scene": ["scenario"]}, {"observed": 0}, {"observed": 2.5}]
    wrong += [{"observed": True}, {"edits": None}, *({"edits": edits} for edits, _ in WRONG)]
    refused += [(400, "/forecast", json.dumps(ASKED | part).encode(), {}) for part in wrong]
    for code, path, content, headers in refused:
        status, answer = ask(server, path, content, **headers)
        assert status == code, (path, headers, answer)
        assert list(answer) == ["error"]
        assert len(answer["error"].splitlines()) == 1, answer
        assert len(answer["error"]) < 300, answer
    assert ask(server, "/forecast", body) == good
