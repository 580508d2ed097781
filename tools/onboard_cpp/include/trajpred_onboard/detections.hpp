// A tracker's detections: the input of every update, checked before use: trajpred/onboard/detections.py.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trajpred_onboard/geometry.hpp"
#include "trajpred_onboard/history.hpp"

namespace trajpred::onboard {

// Fastest road user (m/s). A track that moves faster is another object with a reused id.
inline constexpr double MAX_SPEED = 100.0;
// Maximum number of tracks in an update, and of tracks kept.
inline constexpr std::size_t MAX_TRACKS = 2000;

// Detections of N road users at one time, in the frame of the map.
//
// Missing or non-finite headings (radians) and velocities (m/s) are derived from the positions so far; so
// are, with a warning, velocities above MAX_SPEED and, if one is beyond MAX_HEADING, all headings.
// `object_type` has names of OBJECT_TYPES; without it, all are vehicles.
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

// The usable states, and why others are not usable.
struct Validated {
  std::vector<Detection> states;
  Reasons rejected;
};

// Checks detections; returns nothing, after a warning, if their sizes do not fit.
std::optional<Validated> validated(const Detections& detections, Warnings& warnings);

}  // namespace trajpred::onboard
