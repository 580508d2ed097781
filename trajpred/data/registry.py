"""Extensions of other packages: their encoders, decoders, metrics and predictors, for every command.

A package names a module under the entry point group ``trajpred.plugins``; every command imports it before it
runs. The module defines subclasses of ``TokenEncoder`` or ``SceneDecoder``, registers metrics
(:func:`trajpred.metrics.register`) or adds predictors (:data:`trajpred.predictors.PREDICTORS`).
docs/how-to/own-model.md has an example.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from trajpred.errors import DataError

GROUP = "trajpred.plugins"


@cache
def load_plugins() -> None:
    """Import the modules of all installed plugins, once.

    Raises: DataError naming the plugin that cannot be imported.
    """
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # anything that a foreign module raises on import
            problem = f"plugin {point.name!r} ({point.value}) cannot be imported"
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"{problem} ({reason}); repair or uninstall its package") from None
