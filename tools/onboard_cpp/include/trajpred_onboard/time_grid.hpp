// The states of a track at the steps of a model: trajpred/data/resample.py.
#pragma once

#include <cstddef>
#include <vector>

#include "trajpred_onboard/geometry.hpp"

namespace trajpred::onboard {

// Share of a step by which times may differ and still be the same.
inline constexpr double SAME_TIME = 0.01;

// A recorded state at its own time; its heading is NaN where unknown.
struct TimedState {
  double time_s;
  Point position;
  Point velocity;
  double heading;
};

// Returns how many steps of `step_s` seconds fit into `seconds`.
std::size_t whole_steps(double seconds, double step_s);

// Interpolates the states of a track, in the order of their times, to the times `grid`, which ascend.
//
// Between two states at most `gap_s` seconds apart, position and velocity are interpolated linearly and the
// heading along the shorter arc. Elsewhere the nearest state counts if it lies within half a step of `step_s`
// seconds, moved there at its velocity.
std::vector<State> states_at(const std::vector<TimedState>& states, const std::vector<double>& grid,
                             double gap_s, double step_s);

}  // namespace trajpred::onboard
