"""Fixtures of the export tests, for the onboard benchmark."""

from tests.export.conftest import *  # noqa: F403
