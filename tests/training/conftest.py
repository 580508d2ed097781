"""Fixtures of the features and model tests serve here too."""

from tests.features.conftest import scenario, scenes  # noqa: F401
from tests.model.conftest import model, real, seed  # noqa: F401
