"""The scenes of the model's tests."""

from tests.model.conftest import real  # noqa: F401
