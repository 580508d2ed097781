"""DataError and the checks that raise it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import rejects
from trajpred.data.checks import as_array, as_name, as_names
from trajpred.errors import DataError, require_rows


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "is wrong (because of this)"),
        ({"field": "x"}, "field 'x': is wrong (because of this)"),
        ({"file": "a.json", "field": "x"}, "a.json, field 'x': is wrong (because of this)"),
    ],
)
def test_the_text_is_one_line_with_file_and_field(where: dict[str, Any], text: str) -> None:
    assert str(DataError("is wrong (because\nof this)", **where)) == text


def test_pickling_and_locating_keep_all_parts() -> None:
    error = DataError("is wrong", field="x").located("a")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ValueError)
    assert (type(copy), copy.message, copy.file, copy.field) == (DataError, "is wrong", "a", "x")
    assert copy.located(Path("b")).file == "a"


MASKED = np.ma.masked_equal([1.0, -999.0], -999.0)


@pytest.mark.parametrize(
    "values",
    [
        MASKED,
        [1.0, np.ma.masked],
        np.ma.masked_equal([1, -999], -999),
        [1.0, None],
        torch.tensor([1.0, np.nan], requires_grad=True),
        [torch.tensor(1.0, requires_grad=True), np.nan],
        torch.tensor([1.0, np.nan]).bfloat16(),
    ],
    ids=repr,
)
def test_missing_numbers_are_nan_in_every_form(values: Any) -> None:
    np.testing.assert_array_equal(as_array(values, np.float64, "x"), [1.0, np.nan])
    np.testing.assert_array_equal(as_array([values, values], np.float64, "x"), [[1.0, np.nan]] * 2)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        *((np.float64, values) for values in (np.array([1j]), [1j], np.array(["2026"], "M8[s]"))),
        *((np.bool_, values) for values in ([-1, 1], np.array([-1, 1]), [1.0, np.nan], np.array([np.nan]))),
        *(
            (np.bool_, values)
            for values in (["True"], np.array(["0"]), [True, None], [[True], [False, True]])
        ),
        *((np.bool_, values) for values in (MASKED, np.ma.masked_array([True, False], [False, True]))),
        *((np.int64, values) for values in (1.5, [1, 2.5], np.array([np.nan]), 2.0**63, np.uint64(2**63))),
        *((np.int64, values) for values in (MASKED, [None], ["1.5"], [[1], [1, 2]])),
        (np.int8, np.array([256])),
    ],
)
def test_values_that_would_change_are_rejected(dtype: Any, values: Any) -> None:
    rejects("field 'x': is not an array of", as_array, values, dtype, "x")


def test_names_are_text_whatever_holds_them() -> None:
    values = ["a", b"a\xc3\xbc", np.bytes_(b"b"), 7, np.int64(7), torch.tensor(8)]
    assert [as_name(value, "x") for value in values] == ["a", "aü", "b", "7", "7", "8"]
    assert as_names(np.array([b"a", b"b"]), "x").tolist() == ["a", "b"]
    assert as_names(torch.arange(2), "x", 2).tolist() == ["0", "1"]
    for value in (None, np.nan, np.ma.masked, ["a"], b"\xff", np.zeros(2)):
        rejects("field 'x'", as_name, value, "x")
    for values in ("ab", b"ab", 5, None):
        rejects("must be a list of names", as_names, values, "x")


def test_wrong_rows_are_named() -> None:
    require_rows([True, True], "x", "is wrong")
    for wrong, rows in (([1], "row 1"), ([0, 2], "rows 0, 2"), (range(5), "rows 0, 1, 2 and 2 more")):
        correct = ~np.isin(np.arange(6), wrong)
        rejects(f"field 'x': is wrong: {rows}$", require_rows, correct, "x", "is wrong")
