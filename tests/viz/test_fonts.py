"""Names in any script: an installed font that has them, else question marks; no warning of matplotlib."""

from __future__ import annotations

import logging
import warnings
from io import BytesIO

import numpy as np
import pytest
from matplotlib.font_manager import FontProperties, findfont, get_font

from trajpred import Scenario
from trajpred.viz import draw_scene
from trajpred.viz.fonts import UNKNOWN, legible

#: A sign that matplotlib's STIX fonts have and its default font lacks.
RARE = "\N{EQUALS SIGN ABOVE PLUS SIGN}"
#: No font has it: it is for private use.
NOBODYS = "\U00100000"


def test_a_font_that_has_all_characters_is_chosen() -> None:
    own = findfont(FontProperties())
    assert ord(RARE) not in get_font(own).get_charmap()
    assert legible("scene 7 · ≤")[1].get_file() == own
    text, font = legible(f"a {RARE}")
    assert text == f"a {RARE}"
    assert ord(RARE) in get_font(font.get_file()).get_charmap()
    assert legible(f"a {NOBODYS}")[0] == f"a {UNKNOWN}"


@pytest.mark.parametrize("name", ["雨の交差点 7", f"{RARE} 7", "ไทย 雨 한국"])
def test_a_scene_of_any_name_is_drawn_without_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    ahead = np.zeros((1, 30, 2)) + np.arange(30)[:, None]
    scenario = Scenario.from_arrays(ahead, num_observed=20, scenario_id=name)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        for suffix in ("png", "svg"):
            draw_scene(scenario).savefig(BytesIO(), format=suffix)
    assert not caplog.records
