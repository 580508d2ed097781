#include "trajpred_onboard/time_grid.hpp"

#include <cmath>

#include "trajpred_onboard/clock.hpp"

namespace trajpred::onboard {

namespace {

// Interpolates between headings, or returns the known one; at the time of one state, the other's heading does
// not matter.
double turned(double before, double following, double share) {
  const bool use_following = share > 1 - SAME_TIME || (share > SAME_TIME && std::isnan(before));
  if (std::isnan(before) || std::isnan(following)) return use_following ? following : before;
  return given_heading(wrap_angle(before + share * wrap_angle(following - before)));
}

State state_of(Point position, Point velocity, double heading) {
  return {true, position, std::isnan(heading) ? UNKNOWN_HEADING : heading, velocity};
}

State between(const TimedState& before, const TimedState& following, double share) {
  const Point position = before.position + share * (following.position - before.position);
  const Point velocity = before.velocity + share * (following.velocity - before.velocity);
  return state_of(position, velocity, turned(before.heading, following.heading, share));
}

// Returns a state extrapolated by `after_s` seconds.
State moved(const TimedState& state, double after_s) {
  return state_of(state.position + after_s * state.velocity, state.velocity, state.heading);
}

}  // namespace

std::size_t whole_steps(double seconds, double step_s) {
  return static_cast<std::size_t>(seconds / step_s + SAME_TIME);
}

std::vector<State> states_at(const std::vector<TimedState>& states, const std::vector<double>& grid,
                             double recorded_s, double step_s) {
  const double gap_s = longest_gap_s(recorded_s, step_s);
  std::vector<State> result(grid.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    while (next < states.size() && states[next].time_s <= grid[i]) ++next;
    const TimedState* left = next > 0 ? &states[next - 1] : nullptr;
    const TimedState* right = next < states.size() ? &states[next] : nullptr;
    const double ago_s = left != nullptr ? grid[i] - left->time_s : 0.0;
    const double ahead_s = right != nullptr ? right->time_s - grid[i] : 0.0;
    if (left != nullptr && right != nullptr && right->time_s - left->time_s <= gap_s) {
      result[i] = between(*left, *right, ago_s / (right->time_s - left->time_s));
    } else if (left != nullptr && ago_s < (1 - SAME_TIME) * step_s) {
      result[i] = moved(*left, ago_s);
    } else if (right != nullptr && ahead_s <= (0.5 + SAME_TIME) * step_s) {
      result[i] = moved(*right, -ahead_s);
    }
  }
  return result;
}

}  // namespace trajpred::onboard
