#include "trajpred_onboard/time_grid.hpp"

#include <algorithm>
#include <cmath>

namespace trajpred::onboard {

namespace {

// Interpolates between headings, or returns the known one.
double turned(double before, double following, double share) {
  if (std::isnan(before)) return following;
  if (std::isnan(following)) return before;
  const double heading = wrap_angle(before + share * wrap_angle(following - before));
  return given_heading(heading);
}

State state_of(Point position, Point velocity, double heading) {
  return {true, position, std::isnan(heading) ? UNKNOWN_HEADING : heading, velocity};
}

State between(const TimedState& before, const TimedState& following, double share) {
  const Point position = before.position + share * (following.position - before.position);
  const Point velocity = before.velocity + share * (following.velocity - before.velocity);
  return state_of(position, velocity, turned(before.heading, following.heading, share));
}

}  // namespace

std::size_t whole_steps(double seconds, double step_s) {
  return static_cast<std::size_t>(seconds / step_s + SAME_TIME);
}

std::vector<State> states_at(const std::vector<TimedState>& states, const std::vector<double>& grid,
                             double gap_s, double step_s) {
  std::vector<State> result(grid.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    while (next < states.size() && states[next].time_s <= grid[i] + SAME_TIME * step_s) ++next;
    const TimedState* left = next > 0 ? &states[next - 1] : nullptr;
    const TimedState* right = next < states.size() ? &states[next] : nullptr;
    const TimedState* nearest = left != nullptr ? left : right;
    if (left != nullptr && right != nullptr) {
      const double apart_s = right->time_s - left->time_s;
      const double share = std::clamp((grid[i] - left->time_s) / apart_s, 0.0, 1.0);
      if (apart_s <= gap_s && share > SAME_TIME) {
        result[i] = between(*left, *right, share);
        continue;
      }
      if (share > 0.5) nearest = right;
    }
    if (nearest == nullptr) continue;
    const double after_s = grid[i] - nearest->time_s;
    if (std::abs(after_s) > (0.5 + SAME_TIME) * step_s) continue;
    const Point position = nearest->position + after_s * nearest->velocity;
    result[i] = state_of(position, nearest->velocity, nearest->heading);
  }
  return result;
}

}  // namespace trajpred::onboard
