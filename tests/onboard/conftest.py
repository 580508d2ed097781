"""Fixtures of the export tests serve here too."""

from tests.export.conftest import *  # noqa: F403
