// The vector map: trajpred/data/lane_map.py, and the reader of Argoverse 2's format,
// sources/argoverse2_map.py.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trajpred_onboard/geometry.hpp"

namespace trajpred::onboard {

// `LaneSegment::lane_type` and the marks index these arrays.
inline constexpr std::array<const char*, 3> LANE_TYPES = {"VEHICLE", "BIKE", "BUS"};
inline constexpr std::array<const char*, 15> MARK_TYPES = {
    "NONE",
    "UNKNOWN",
    "DASHED_WHITE",
    "DASHED_YELLOW",
    "SOLID_WHITE",
    "SOLID_YELLOW",
    "SOLID_BLUE",
    "DOUBLE_SOLID_WHITE",
    "DOUBLE_SOLID_YELLOW",
    "DOUBLE_DASH_WHITE",
    "DOUBLE_DASH_YELLOW",
    "DASH_SOLID_WHITE",
    "DASH_SOLID_YELLOW",
    "SOLID_DASH_WHITE",
    "SOLID_DASH_YELLOW",
};
// Neighbour id of lanes without a neighbour.
inline constexpr std::int64_t NO_LANE = -1;
// Largest coordinate (m) of a map or a track; beyond it float32 loses the position.
inline constexpr double MAX_COORDINATE = 1e8;

// Receives a sentence.
using Report = std::function<void(const std::string& sentence)>;

// Writes a sentence as a line to the standard error stream.
void report_to_stderr(const std::string& sentence);

struct LaneSegment {
  // Unique in its map.
  std::int64_t lane_id = 0;
  // In driving direction, at least two points.
  Polyline centerline;
  // Without points if unknown.
  Polyline left_boundary;
  Polyline right_boundary;
  int lane_type = 0;
  bool is_intersection = false;
  int left_mark = 0;
  int right_mark = 0;
  std::int64_t left_neighbor = NO_LANE;
  std::int64_t right_neighbor = NO_LANE;
  // Ids of lanes, which may lie outside this map.
  std::vector<std::int64_t> predecessors;
  std::vector<std::int64_t> successors;

  // Throws DataError that names the first field with an invalid value.
  void validate() const;
};

// A pedestrian crossing: its two long sides.
struct Crossing {
  std::int64_t crossing_id = 0;
  Polyline edge1;
  Polyline edge2;

  // Throws DataError that names the first field with an invalid value.
  void validate() const;
};

// Lane segments and pedestrian crossings, in metres.
struct LaneMap {
  std::vector<LaneSegment> lanes;
  std::vector<Crossing> crossings;

  // Reads a map in Argoverse 2's format; `trajpred info MAP --save lanes.json` writes it.
  //
  // Broken records are left out; `report` receives a sentence that counts and names them.
  // Throws DataError that names the file if it is not such a map, or if none of its lanes is left.
  static LaneMap load(const std::string& path, const Report& report = report_to_stderr);

  // Reads this format from a text.
  static LaneMap parse(const std::string& json, const Report& report = report_to_stderr);

  // Throws DataError that names the first field with an invalid value, or that an id occurs twice.
  void validate() const;
};

}  // namespace trajpred::onboard
