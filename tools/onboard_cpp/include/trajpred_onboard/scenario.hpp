// Tracks and scenes: the records of trajpred/data/scenario.py and of one scene of trajpred/data/batch.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trajpred_onboard/geometry.hpp"
#include "trajpred_onboard/lane_map.hpp"

namespace trajpred::onboard {

// The object types in order; `Track::object_type` indexes this array.
inline constexpr std::array<const char*, 10> OBJECT_TYPES = {
    "vehicle", "pedestrian", "motorcyclist", "cyclist",           "bus",
    "static",  "background", "construction", "riderless_bicycle", "unknown",
};
// The index of `unknown` in it.
inline constexpr int UNKNOWN_TYPE = static_cast<int>(OBJECT_TYPES.size()) - 1;
// Largest heading (radians), four turns either way: a larger one must be in degrees.
inline constexpr double MAX_HEADING = 8 * PI;
// The id of the recording vehicle.
inline constexpr const char* EGO_ID = "AV";

// Quality of a track and whether it is scored (Argoverse 2's numbers).
enum TrackCategory { FRAGMENT = 0, UNSCORED = 1, SCORED = 2, FOCAL = 3 };

// The observed states of one road user; the last one is at the current step.
struct Track {
  std::string track_id;
  int object_type = 0;
  int category = UNSCORED;
  std::vector<State> states;

  // Returns the last valid step, -1 without any.
  std::int64_t last_seen() const;
};

using Tracks = std::vector<Track>;

struct Routes;

// The observed steps of one scenario, all tracks with equal numbers of states, in the frame of the map.
struct Scene {
  std::string scenario_id;
  double step_s = 0.1;
  // Row of the track at the centre.
  std::size_t focal = 0;
  Tracks tracks;
  // Must not change afterwards: an object's lanes are processed only once.
  std::shared_ptr<const LaneMap> map;
  // The routes along its lanes, if already known; routes of another map are not used.
  std::shared_ptr<const Routes> routes;

  // Returns the number of steps.
  std::size_t num_observed() const;

  // Returns the last `observed` steps; steps that were never recorded are unknown.
  Scene window(std::size_t observed) const;

  // Throws DataError about the first track or field that is invalid.
  void validate() const;
};

}  // namespace trajpred::onboard
