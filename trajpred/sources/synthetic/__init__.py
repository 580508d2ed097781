"""Synthetic scenarios in Argoverse 2's format, for scale tests, CI and teaching.

They look like traffic and are none: no figure measured on them says anything about accuracy.
"""

from trajpred.sources.synthetic.folder import synthesize
from trajpred.sources.synthetic.scenes import make_block
from trajpred.sources.synthetic.write import write_scenario

__all__ = ["make_block", "synthesize", "write_scenario"]
