// Which parts of a scenario become tokens, and the scales of features: trajpred/features/config.py,
// channels.py.
#pragma once

#include <cstddef>

namespace trajpred::onboard {

// Positions and speeds are divided by these (m, m/s), so that most features lie within a few units.
inline constexpr double LENGTH_SCALE = 10.0;
inline constexpr double SPEED_SCALE = 10.0;
// Numbers of a step of a history, and of a point of a lane (HISTORY and LANE_POINT of channels.py).
inline constexpr std::size_t HISTORY_CHANNELS = 7;
inline constexpr std::size_t LANE_POINT_CHANNELS = 8;

// Attributes that a model does not read, even if the data have them: `omit` in `bundle.json`.
struct Omitted {
  bool boundaries = false;
  bool marks = false;
  bool lane_types = false;
  bool crossings = false;
  bool classes = false;
};

// The choice of tracks and lanes that become tokens, from `bundle.json`.
struct FeatureConfig {
  // Tracks last observed longer ago are omitted, unless they are scored.
  double memory_s = 1.0;
  // Maximum number of agents: the focal one, then scored ones, then the nearest to the focal one.
  std::size_t max_agents = 128;
  // Maximum number of lane segments and crossings; the nearest to any agent are kept.
  std::size_t max_lanes = 256;
  // Lanes farther than this from every agent are omitted (m).
  double lane_radius_m = 100.0;
  // Points per polyline, even.
  std::size_t lane_points = 10;
  // Observed steps of the model's input; 0 for the data's.
  std::size_t history = 0;
  // Future steps of the training data; not used onboard.
  std::size_t future = 0;
  // Future steps of the agents' anchors, 0 for none.
  std::size_t anchor_steps = 0;
  // Rules based on classes (futures along the lanes) still read them.
  Omitted omit;
};

}  // namespace trajpred::onboard
