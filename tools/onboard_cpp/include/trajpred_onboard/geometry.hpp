// Planar geometry and motion: trajpred/data/geometry.py and motion.py. Metres, radians, m/s.
#pragma once

#include <cmath>
#include <vector>

namespace trajpred::onboard {

inline constexpr double PI = 3.14159265358979323846;
// Speed in m/s below which the direction of travel is noise and the previous heading is kept.
inline constexpr double STANDING_SPEED = 0.5;
// Speed in m/s above which a track that moves against its heading is turned round.
inline constexpr double BACKWARDS_SPEED = 1.0;
// Distance in metres from its first position beyond which a track has moved.
inline constexpr double MOVED_M = 1.0;
// Unknown heading.
inline constexpr double UNKNOWN_HEADING = 0.0;
// Heading (radians) of a state known to head along the x axis: exactly 0 would mean unknown.
inline constexpr double KNOWN_ZERO = 1e-12;

// A position in metres, a displacement, or a velocity in m/s.
struct Point {
  double x = 0.0;
  double y = 0.0;
};

inline Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
inline Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
inline Point operator*(double factor, Point a) { return {factor * a.x, factor * a.y}; }

using Polyline = std::vector<Point>;

// A position and a heading, counter-clockwise from the x axis.
struct Pose {
  Point position;
  double heading = 0.0;
};

// A rotation by `angle`, counter-clockwise.
class Rotation {
 public:
  explicit Rotation(double angle) : cos_(std::cos(angle)), sin_(std::sin(angle)) {}

  Point operator()(Point vector) const {
    return {vector.x * cos_ - vector.y * sin_, vector.x * sin_ + vector.y * cos_};
  }

 private:
  double cos_;
  double sin_;
};

// Transforms points between the frame of the map and that of a pose: x ahead, y to the left.
class Frame {
 public:
  explicit Frame(const Pose& pose)
      : origin_(pose.position), to_local_(-pose.heading), to_global_(pose.heading) {}

  Point to_local(Point point) const { return to_local_(point - origin_); }
  Point to_global(Point point) const { return to_global_(point) + origin_; }
  // Transforms a velocity, which has no position.
  Point direction_to_local(Point vector) const { return to_local_(vector); }

 private:
  Point origin_;
  Rotation to_local_;
  Rotation to_global_;
};

inline double norm(Point vector) { return std::hypot(vector.x, vector.y); }

// Computes the heading of a vector in [-π, π]; 0 for the zero vector.
inline double direction(Point vector) { return std::atan2(vector.y, vector.x); }

inline Point unit_vector(double angle) { return {std::cos(angle), std::sin(angle)}; }

inline bool is_finite(Point point) { return std::isfinite(point.x) && std::isfinite(point.y); }

// Wraps an angle to [-π, π).
double wrap_angle(double angle);

// Returns a given or derived heading, with KNOWN_ZERO instead of 0.
double given_heading(double heading);

// Returns the displacement after `time_s` seconds at `velocity` and `turn_rate` (rad/s).
Point arc(Point velocity, double turn_rate, double time_s);

// Returns the metres along a polyline from its start to each of its points.
std::vector<double> arc_length(const Polyline& line);

// The state of a track at one step. Values where `valid` is false are 0.
struct State {
  bool valid = false;
  Point position;
  double heading = 0.0;
  Point velocity;
};

// Returns whether each state is farther than MOVED_M from the first valid one.
std::vector<bool> has_moved(const std::vector<State>& states);

// Returns whether the heading of each state is known: not before a track has moved.
std::vector<bool> heading_known(const std::vector<State>& states);

// Returns the heading of each state, reversed if it is known and the track moves against it faster than
// BACKWARDS_SPEED.
std::vector<double> forward_heading(const std::vector<State>& states, const std::vector<bool>& known);

}  // namespace trajpred::onboard
