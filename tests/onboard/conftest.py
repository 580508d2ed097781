"""Fixtures of the export tests, for the runtime."""

from tests.export.conftest import *  # noqa: F403
