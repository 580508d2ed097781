// Lane segments and crossings in their own frames: the lanes of trajpred/features/lanes.py.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trajpred_onboard/agents.hpp"
#include "trajpred_onboard/arrays.hpp"
#include "trajpred_onboard/config.hpp"
#include "trajpred_onboard/lane_map.hpp"
#include "trajpred_onboard/ragged.hpp"

namespace trajpred::onboard {

// Returns the map without attributes that the model omits, as if not recorded.
std::shared_ptr<const LaneMap> visible_map(std::shared_ptr<const LaneMap> map, const Omitted& omit);

// A lane segment or crossing as polylines with equal numbers of points, in the frame of the map.
struct LaneLines {
  Polyline center;
  // Zeros where not known.
  Polyline left;
  Polyline right;
  bool has_left;
  bool has_right;
  Point midpoint;
};

// Resamples all lane segments of a map, then all crossings, to `points` points each.
std::vector<LaneLines> lane_lines(const LaneMap& map, std::size_t points);

// Features of M lane segments and crossings that depend only on the map.
struct LaneShapes {
  // [M] radians, the direction at the midpoint.
  Floats heading;
  // [M, P, LANE_POINT_CHANNELS], own frame; zeros for an unknown boundary.
  Floats points;
  // [M] index into LANE_TYPES; crossings follow as one more type.
  Integers kind;
  // [M] 0 or 1.
  Integers is_intersection;
  // [M, 2] left and right mark type.
  Integers marks;
};

// Computes the shapes of all lines of a map.
LaneShapes lane_shapes(const LaneMap& map, const std::vector<LaneLines>& lines);

// An edge of the lane graph, by rows of the map.
struct LaneEdge {
  std::size_t sender;
  std::size_t receiver;
  // The sender's relation to the receiver: 1 successor, 2 predecessor, 3 left, 4 right neighbour.
  std::int64_t kind;
};

// Finds related lanes. A pair related in two ways keeps the first; self loops are omitted.
std::vector<LaneEdge> lane_topology(const LaneMap& map);

// Selects the lanes that are nearest to an agent, within the radius; ascending.
//
// `midpoint`: metres from the scene's origin.
Rows lanes_near(const std::vector<Point>& midpoint, const AgentFeatures& agents, const FeatureConfig& config);

// Returns the kinds of the edges between the lanes `keep`, receiver by sender: [L, L], 0 for none.
Integers topology_among(const Rows& keep, const std::vector<LaneEdge>& edges, std::size_t rows);

}  // namespace trajpred::onboard
