"""Fixtures of the graph and model tests serve here too."""

from tests.model.conftest import model, real, seed  # noqa: F401
