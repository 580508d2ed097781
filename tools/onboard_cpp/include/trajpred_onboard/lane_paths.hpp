// Paths of agents along the lanes beside them and their successors: lane_paths.py of trajpred/features.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "trajpred_onboard/geometry.hpp"
#include "trajpred_onboard/lane_map.hpp"
#include "trajpred_onboard/ragged.hpp"

namespace trajpred::onboard {

// Points of a path.
inline constexpr std::size_t POINTS = 64;
// A lane matches if its centreline is within this distance (metres) and angle (radians).
inline constexpr double MATCH_RADIUS_M = 5.0;
inline constexpr double MATCH_ANGLE = PI / 4;
// Standard deviations of distance, angle, and a path's turn after a fork (radians), for weighting paths.
inline constexpr double OFFSET_SD_M = 1.5;
inline constexpr double ANGLE_SD = 0.3;
inline constexpr double TURN_SD = 1.0;
// Number of best-matching lanes to follow, and of paths from each.
inline constexpr std::size_t MAX_LANES = 4;
inline constexpr std::size_t MAX_PATHS = 8;
// Row of no lane.
inline constexpr auto NO_ROW = static_cast<std::size_t>(-1);

// A straight piece of a centreline.
struct Segment {
  Point start;
  Point step;
  double size_m;
  double heading;
  // Metres from the start of the lane.
  double along_m;
};

// A lane, prepared for following it.
struct Route {
  const Polyline* centerline;
  // Metres from the start of the lane to each point.
  std::vector<double> arc;
  // Without pieces shorter than a micrometre, which have no direction.
  std::vector<Segment> segments;
  // Corners of the box around the centreline.
  Point low;
  Point high;
  // Rows of the successors in the map.
  Rows following;
  // Row of the lane that forks into this one and others.
  std::size_t fork = NO_ROW;
};

// Where the lanes of a map lead; computed once per map.
struct Routes {
  std::shared_ptr<const LaneMap> map;
  std::vector<Route> routes;

  static Routes of(std::shared_ptr<const LaneMap> map);
};

// A path: equidistant points from the agent's position, and how well its pose fits, at most 1.
struct Path {
  std::array<Point, POINTS> curve;
  double weight;
};

// An agent to find paths for.
struct Traveller {
  Pose pose;
  // Length of its paths.
  double reach_m;
  // Distance over which the offset from the centreline fades out.
  double fade_m;
};

// Returns the direction of the centreline nearest to a position; UNKNOWN_HEADING if none is within
// MATCH_RADIUS_M.
double nearest_heading(const Routes& lanes, Point position);

// Returns each agent's paths along lanes beside it; none far from any lane.
//
// Where the map ends, a path goes straight. It starts at the agent: the offset from the centreline is kept at
// first and fades out smoothly. Branches of a fork are weighted against each other by their turns; the only
// path along a road keeps its weight, however much the road turns.
std::vector<std::vector<Path>> lane_paths(const Routes& lanes, const std::vector<Traveller>& agents);

}  // namespace trajpred::onboard
