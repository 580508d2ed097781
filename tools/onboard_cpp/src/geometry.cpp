#include "trajpred_onboard/geometry.hpp"

#include <algorithm>
#include <cstddef>

namespace trajpred::onboard {

namespace {

// Returns the first valid position.
Point first_position(const std::vector<State>& states) {
  for (const State& state : states) {
    if (state.valid) return state.position;
  }
  return {};
}

}  // namespace

double wrap_angle(double angle) {
  double wrapped = std::fmod(angle + PI, 2 * PI);
  if (wrapped < 0) wrapped += 2 * PI;
  wrapped -= PI;
  // The remainder of a tiny negative number rounds to a full turn.
  return wrapped >= PI ? wrapped - 2 * PI : wrapped;
}

double given_heading(double heading) { return heading == UNKNOWN_HEADING ? KNOWN_ZERO : heading; }

Point arc(Point velocity, double turn_rate, double time_s) {
  // The chord of an arc that turns by ωt has length v t sinc(ωt / 2) and direction ωt / 2.
  const double half = turn_rate * time_s / 2;
  const double sinc = half == 0.0 ? 1.0 : std::sin(half) / half;
  return (time_s * sinc) * Rotation(half)(velocity);
}

std::vector<double> arc_length(const Polyline& line) {
  std::vector<double> length(line.size(), 0.0);
  for (std::size_t i = 1; i < line.size(); ++i) {
    length[i] = length[i - 1] + norm(line[i] - line[i - 1]);
  }
  return length;
}

std::vector<bool> has_moved(const std::vector<State>& states) {
  const Point first = first_position(states);
  std::vector<bool> moved;
  moved.reserve(states.size());
  for (const State& state : states) moved.push_back(state.valid && norm(state.position - first) > MOVED_M);
  return moved;
}

std::vector<bool> heading_known(const std::vector<State>& states) {
  std::vector<bool> known = has_moved(states);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i].valid && states[i].heading != UNKNOWN_HEADING) known[i] = true;
  }
  return known;
}

std::vector<double> forward_heading(const std::vector<State>& states, const std::vector<bool>& known) {
  std::vector<double> heading;
  heading.reserve(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    const State& state = states[i];
    const Point forward = unit_vector(state.heading);
    const double speed = forward.x * state.velocity.x + forward.y * state.velocity.y;
    const bool backwards = known[i] && speed < -BACKWARDS_SPEED;
    heading.push_back(backwards ? wrap_angle(state.heading + PI) : state.heading);
  }
  return heading;
}

}  // namespace trajpred::onboard
