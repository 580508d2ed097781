"""Every published operator against recorded vectors of its reference program: one test per case.

The few that ship with the repository prove every operator in a bare clone. ``TRAJPRED_PARITY`` names the
folder of all others (default ``$TRAJPRED_SHARED/parity/open``).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.nn.parity import (
    gat,
    graph_transformer,
    multi_head_attention,
    padded_attention,
    transformer_conv,
    transformer_m,
)
from tests.nn.parity.case import Case

SHIPPED = Path(__file__).parent / "parity" / "vectors"
SHARED = Path(os.environ.get("TRAJPRED_SHARED", Path(__file__).parents[3] / "shared"))
OTHERS = Path(os.environ.get("TRAJPRED_PARITY", SHARED / "parity" / "open"))
OPERATORS = (gat, graph_transformer, multi_head_attention, padded_attention, transformer_conv, transformer_m)


def each_case(root: Path) -> pytest.MarkDecorator:
    """Parametrize over the cases of all layer folders below ``root``."""
    paths = sorted(root.glob("*/*.json"))
    return pytest.mark.parametrize("path", paths, ids=lambda path: f"{path.parent.name}/{path.stem}")


def check(path: Path) -> None:
    """Compare one case with our operator; an unknown layer or option is a failure."""
    case = Case(path)
    name = f"check_{case.layer}"
    owners = [module for module in OPERATORS if hasattr(module, name)]
    assert len(owners) == 1, f"{name} is in {len(owners)} modules"
    getattr(owners[0], name)(case)
    assert not case.options.unread, f"unknown options: {sorted(case.options.unread)}"


@each_case(SHIPPED)
def test_shipped_vectors(path: Path) -> None:
    check(path)


@pytest.mark.skipif(not OTHERS.is_dir(), reason=f"TRAJPRED_PARITY: no folder {OTHERS}")
@each_case(OTHERS)
def test_vectors(path: Path) -> None:
    check(path)
