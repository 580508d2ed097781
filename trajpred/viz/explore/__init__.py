"""What if: scenarios that are edited by hand, and the page on which models answer while one does it."""

from trajpred.viz.explore.edits import apply, at_step, scenario_on

__all__ = ["apply", "at_step", "scenario_on"]
