"""Pictures of scenarios and forecasts, drawn with matplotlib and without a display."""

from trajpred.viz.notebook import plot_scenario
from trajpred.viz.scene import draw_scene, save_scene

__all__ = ["draw_scene", "plot_scenario", "save_scene"]
