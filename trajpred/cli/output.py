"""What commands change in their process, so that users read only what they can act on."""

from __future__ import annotations

import logging
import threading
import warnings

#: Warnings of libraries that a user of ``trajpred train`` cannot act on.
WARNINGS = (
    "LightningCLI's args",
    ".*does not have many workers",
    ".*logging interval",
    ".*LeafSpec",
    "Checkpoint directory .* is not empty",  # a resumed run
    "You're resuming from a checkpoint that ended before",  # SceneLoader resumes within the epoch
)


def silence_libraries() -> None:
    """Hide messages of the libraries that train a model, in the whole process."""
    threading.excepthook = _report_in_threads
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message)


def _report_in_threads(error: threading.ExceptHookArgs) -> None:
    """Print the traceback of a thread, unless TensorBoard's cannot write: its next write raises the error."""
    if not isinstance(error.exc_value, OSError):
        threading.__excepthook__(error)
