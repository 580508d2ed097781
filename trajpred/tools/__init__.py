"""The tools as functions: arguments and their meaning, then one call into the package.

``cli.py`` makes command lines of them. torch is imported only by those that need it.
"""

from trajpred.tools.data import download, prepare, synthesize
from trajpred.tools.models import calibrate, predict, ship
from trajpred.tools.onboard import export, replay
from trajpred.tools.scores import compare, evaluate
from trajpred.tools.visualize import visualize

__all__ = [
    "calibrate",
    "compare",
    "download",
    "evaluate",
    "export",
    "predict",
    "prepare",
    "replay",
    "ship",
    "synthesize",
    "visualize",
]
