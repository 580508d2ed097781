"""DataError and the checks that raise it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajpred.errors import DataError, as_array, encode, within


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


@pytest.mark.parametrize("name", ["c", None, True, 0, ["a"], {}])
def test_encode_returns_indices_and_names_unknown_values(name: Any) -> None:
    assert encode(["b", "a", "b"], ("a", "b"), "x").tolist() == [1, 0, 1]
    with pytest.raises(DataError) as caught:
        encode(["a", name], ("a", "b"), "x")
    assert caught.value.field == "x" and f"{name!r}; known: a, b" in str(caught.value)


@pytest.mark.parametrize("values", [[[1], [1, 2]], ["one"], [None, object()], [{}], [1, 2]])
def test_as_array_rejects_other_shapes_and_types(values: Any) -> None:
    with pytest.raises(DataError, match="field 'x'"):
        as_array(values, np.float64, "x", (3,))


def test_as_array_copies_and_within_checks_indices() -> None:
    values = np.zeros(3)
    as_array(values, np.float64, "x")[0] = 1
    assert not values.any()
    cases = [([0, 2], True), ([], True), ([3], False), ([-1], False)]
    assert [within(np.array(values, int), 3) for values, _ in cases] == [inside for _, inside in cases]
