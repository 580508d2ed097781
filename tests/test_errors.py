"""DataError says where and what, survives pickling, and is what every check raises."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trajpred.errors import DataError, as_array, encode, require, within


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "is wrong"),
        ({"field": "x"}, "field 'x': is wrong"),
        ({"file": Path("a.json")}, "a.json: is wrong"),
        ({"file": "a.json", "field": "x"}, "a.json, field 'x': is wrong"),
    ],
)
def test_text_names_file_and_field(where: dict[str, Any], text: str) -> None:
    assert str(DataError("is wrong", **where)) == text


def test_text_is_one_line_whatever_is_quoted() -> None:
    assert (
        str(DataError("is wrong (because\nof this\n)", field="x")) == "field 'x': is wrong (because of this )"
    )


def test_pickle_keeps_all_parts() -> None:
    copy = pickle.loads(pickle.dumps(DataError("is wrong", file=Path("a"), field="x")))
    assert (type(copy), copy.message, copy.file, copy.field) == (DataError, "is wrong", Path("a"), "x")


def test_located_adds_the_file_but_keeps_a_closer_one() -> None:
    assert DataError("is wrong", field="x").located("a").file == "a"
    assert DataError("is wrong", file="b").located("a").file == "b"


def test_data_error_is_a_value_error() -> None:
    assert issubclass(DataError, ValueError)


def test_require() -> None:
    require(True, "x", "is wrong")
    with pytest.raises(DataError, match="field 'x': is wrong"):
        require(False, "x", "is wrong")


@pytest.mark.parametrize(("values", "inside"), [([0, 2], True), ([], True), ([3], False), ([-1], False)])
def test_within(values: list[int], inside: bool) -> None:
    assert within(np.array(values, int), 3) is inside


def test_encode_gives_indices() -> None:
    assert encode(["b", "a", "b"], ("a", "b"), "x").tolist() == [1, 0, 1]


@pytest.mark.parametrize("name", ["c", None, True, 0, ["a"], {}])
def test_encode_names_the_unknown_value_and_the_known_ones(name: Any) -> None:
    with pytest.raises(DataError) as caught:
        encode(["a", name], ("a", "b"), "x")
    assert caught.value.field == "x"
    assert repr(name) in str(caught.value)
    assert "a, b" in str(caught.value)


@pytest.mark.parametrize("values", [[[1], [1, 2]], ["one"], [None, object()], [{}]])
def test_as_array_refuses_what_is_no_array_of_numbers(values: Any) -> None:
    with pytest.raises(DataError) as caught:
        as_array(values, np.float64, "x")
    assert caught.value.field == "x"


def test_as_array_copies() -> None:
    values = np.zeros(3)
    as_array(values, np.float64, "x")[0] = 1
    assert values[0] == 0
