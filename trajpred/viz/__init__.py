"""Pictures and films of scenarios and forecasts, drawn with matplotlib without a display."""

from trajpred.viz.legend import legend_alone
from trajpred.viz.overlays import WhatIf
from trajpred.viz.scene import draw_lane_map, draw_scene, plot_scenario, save_scene

__all__ = ["WhatIf", "draw_lane_map", "draw_scene", "legend_alone", "plot_scenario", "save_scene"]
