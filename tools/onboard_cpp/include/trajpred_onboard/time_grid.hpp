// The states of a track at the steps of a model: trajpred/data/resample.py.
#pragma once

#include <cstddef>
#include <vector>

#include "trajpred_onboard/geometry.hpp"

namespace trajpred::onboard {

// A recorded state at its own time; its heading is NaN where unknown.
struct TimedState {
  double time_s;
  Point position;
  Point velocity;
  double heading;
  int object_type;
};

// Returns how many steps of `step_s` seconds fit into `seconds`.
std::size_t whole_steps(double seconds, double step_s);

// Returns a track's states, given in order of time, at the ascending times `grid`.
//
// Between two states up to longest_gap_s apart, position and velocity are interpolated linearly and the
// heading along the shorter arc. Otherwise the state before is extrapolated at its velocity if it is less
// than a step of `step_s` seconds old, or else the state after if it is at most half a step ahead.
// `recorded_s`: usual seconds between states.
std::vector<State> states_at(const std::vector<TimedState>& states, const std::vector<double>& grid,
                             double recorded_s, double step_s);

}  // namespace trajpred::onboard
