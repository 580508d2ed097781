"""What if: scenarios edited by hand, and the page on which models answer every edit."""

from trajpred.viz.explore.edits import apply, at_step, scenario_on

__all__ = ["apply", "at_step", "scenario_on"]
