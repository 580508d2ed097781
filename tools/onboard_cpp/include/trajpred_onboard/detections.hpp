// A tracker's detections: the input of every update, checked before it is used:
// trajpred/onboard/detections.py.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trajpred_onboard/geometry.hpp"
#include "trajpred_onboard/history.hpp"

namespace trajpred::onboard {

// Fastest road user (m/s). A track that moves faster is another object under the same id.
inline constexpr double MAX_SPEED = 100.0;
// Number of tracks in an update, and of tracks remembered.
inline constexpr std::size_t MAX_TRACKS = 2000;

// Detections of N road users at one time, in the frame of the map.
//
// Headings (radians) and velocities (m/s) that are missing or not finite are derived from the positions so far;
// so are, with a warning, velocities above MAX_SPEED and, where one is beyond MAX_HEADING, all headings. Without `object_type`, names of OBJECT_TYPES, all are vehicles.
struct Detections {
  std::vector<std::string> track_id;
  std::vector<Point> position;
  std::optional<std::vector<double>> heading = {};
  std::optional<std::vector<Point>> velocity = {};
  std::optional<std::vector<std::string>> object_type = {};
};

// Reasons by track id.
using Reasons = std::map<std::string, std::string>;
using Warnings = std::vector<std::string>;

// The usable states, and why the others are not.
struct Validated {
  std::vector<Detection> states;
  Reasons rejected;
};

// Checks detections; returns nothing, after a warning, if their sizes do not fit.
std::optional<Validated> validated(const Detections& detections, Warnings& warnings);

}  // namespace trajpred::onboard
