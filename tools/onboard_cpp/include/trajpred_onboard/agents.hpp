// Selects the tracks that become agents, and expresses their states in their own frames:
// trajpred/features/agents.py.
#pragma once

#include <string>
#include <vector>

#include "trajpred_onboard/arrays.hpp"
#include "trajpred_onboard/config.hpp"
#include "trajpred_onboard/lane_paths.hpp"
#include "trajpred_onboard/scenario.hpp"

namespace trajpred::onboard {

// A agents of a scene; the frame of each is its last observed pose.
struct AgentFeatures {
  // Rows of the scene's tracks.
  Rows track;
  std::vector<std::string> track_id;
  // [A, 2] metres from the scene's origin.
  Floats position;
  // [A] radians.
  Floats heading;
  // [A, 2] m/s at the last observed state, own frame.
  Floats velocity;
  // [A] seconds from the last observed state to the last observed step of the scene.
  Floats elapsed_s;
  // [A] index into OBJECT_TYPES.
  Integers object_type;
  // [A, T, HISTORY_CHANNELS], own frame; zeros where not valid.
  Floats history;
  // [A, MODES, anchor_steps, 2] metres, own frame: futures along the lanes, the most probable first.
  Floats anchors;

  std::size_t size() const { return track.size(); }
};

// Returns the heading of each state, in the frame of the map.
//
// A track that moves backwards is turned round. Before its heading is known, it gets its last observed
// heading; if that is unknown, the direction of the nearest lane, if there is one.
std::vector<double> completed_headings(const Track& track, const Routes& lanes);

// Returns the last observed pose of the focal track, or of the track seen last if the focal one has no
// observed state, in the frame of the map. Throws DataError if no track has one.
Pose focal_pose(const Scene& scene, const Routes& lanes);

// Computes the agents of a scene; `origin`: metres, in the frame of the map.
AgentFeatures agent_features(const Scene& scene, Point origin, const FeatureConfig& config,
                             const Routes& lanes);

}  // namespace trajpred::onboard
