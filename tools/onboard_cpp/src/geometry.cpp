#include "trajpred_onboard/geometry.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace trajpred::onboard {

namespace {

// Sums over the valid steps of a window, for a line fitted to x and y over time.
struct Sums {
  double n = 0.0;
  double t = 0.0;
  double tt = 0.0;
  Point xy;
  Point txy;
};

Sums operator+(const Sums& a, const Sums& b) {
  return {a.n + b.n, a.t + b.t, a.tt + b.tt, a.xy + b.xy, a.txy + b.txy};
}

Sums operator-(const Sums& a, const Sums& b) {
  return {a.n - b.n, a.t - b.t, a.tt - b.tt, a.xy - b.xy, a.txy - b.txy};
}

// Returns the first valid position, so that sums of squares stay small in any frame.
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

std::vector<Point> causal_velocity(const std::vector<State>& states, double step_s, double window_s) {
  const std::size_t steps = states.size();
  const auto window = static_cast<std::size_t>(std::max(2.0, std::nearbyint(window_s / step_s)));
  const Point first = first_position(states);
  std::vector<Sums> total = {Sums{}};
  for (std::size_t i = 0; i < steps; ++i) {
    Sums terms;
    if (states[i].valid) {
      const double time_s = static_cast<double>(i) * step_s;
      const Point xy = states[i].position - first;
      terms = {1.0, time_s, time_s * time_s, xy, time_s * xy};
    }
    total.push_back(total.back() + terms);
  }
  std::vector<Point> velocity(steps);
  std::optional<std::size_t> previous;
  for (std::size_t i = 0; i < steps; ++i) {
    if (!states[i].valid) continue;
    const std::size_t before = i + 1 > window ? i + 1 - window : 0;
    const Sums sums = total[i + 1] - total[before];
    const double spread = sums.n * sums.tt - sums.t * sums.t;
    if (sums.n > 1) {
      velocity[i] = (1 / spread) * (sums.n * sums.txy - sums.t * sums.xy);
    } else if (previous) {  // alone in its window
      const double duration_s = static_cast<double>(i - *previous) * step_s;
      velocity[i] = (1 / duration_s) * (states[i].position - states[*previous].position);
    }
    previous = i;
  }
  return velocity;
}

std::vector<bool> has_moved(const std::vector<State>& states) {
  const Point first = first_position(states);
  std::vector<bool> moved;
  moved.reserve(states.size());
  for (const State& state : states) moved.push_back(state.valid && norm(state.position - first) > MOVED_M);
  return moved;
}

std::vector<double> causal_heading(const std::vector<Point>& velocity, const std::vector<State>& states) {
  const std::vector<bool> moved = has_moved(states);
  const Point first = first_position(states);
  std::vector<double> heading(states.size(), UNKNOWN_HEADING);
  std::optional<double> latest;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (moved[i] && norm(velocity[i]) > STANDING_SPEED) latest = direction(velocity[i]);
    if (latest) {
      heading[i] = *latest;
    } else if (moved[i]) {  // it has only crept so far
      heading[i] = direction(states[i].position - first);
    }
  }
  return heading;
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
