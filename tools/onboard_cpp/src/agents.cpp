#include "trajpred_onboard/agents.hpp"

#include <cmath>

#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/lane_futures.hpp"

namespace trajpred::onboard {

namespace {

// A track that may become an agent.
struct Agent {
  std::size_t track;
  std::size_t last;
  double elapsed_s;
  bool is_focal;
  bool is_scored;
  double distance_m;
};

const State& state_of(const Scene& scene, const Agent& agent) {
  return scene.tracks[agent.track].states[agent.last];
}

// Returns the tracks that were observed recently or are scored, in scene order.
std::vector<Agent> candidates(const Scene& scene, Point origin, const FeatureConfig& config) {
  std::vector<Agent> agents;
  const auto now = static_cast<std::int64_t>(scene.num_observed()) - 1;
  for (std::size_t row = 0; row < scene.tracks.size(); ++row) {
    const Track& track = scene.tracks[row];
    const std::int64_t last = track.last_seen();
    if (last < 0) continue;
    const double elapsed_s = static_cast<double>(now - last) * scene.step_s;
    const bool is_scored = track.category >= SCORED;
    // Clocks jitter: ten steps may take 1.00002 s.
    const bool is_recent = elapsed_s <= config.memory_s + scene.step_s / 10;
    if (!is_scored && !is_recent) continue;
    const auto step = static_cast<std::size_t>(last);
    const double distance_m = norm(track.states[step].position - origin);
    agents.push_back({row, step, elapsed_s, row == scene.focal, is_scored, distance_m});
  }
  return agents;
}

// Selects the tracks that become agents.
std::vector<Agent> select(const Scene& scene, Point origin, const FeatureConfig& config) {
  const std::vector<Agent> agents = candidates(scene, origin, config);
  const auto before = [&agents](std::size_t first, std::size_t second) {
    const Agent& a = agents[first];
    const Agent& b = agents[second];
    if (a.is_focal != b.is_focal) return a.is_focal;
    if (a.is_scored != b.is_scored) return a.is_scored;
    return a.distance_m < b.distance_m;
  };
  Rows rows(agents.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  std::vector<Agent> selected;
  for (std::size_t row : smallest(rows, config.max_agents, before)) selected.push_back(agents[row]);
  return selected;
}

void append(Floats& values, Point point) {
  values.push_back(static_cast<float>(point.x));
  values.push_back(static_cast<float>(point.y));
}

// Appends the observed states of a track, with headings, in the frame of the last one.
void append_history(const Track& track, const std::vector<double>& heading, const Pose& pose,
                    Floats& history) {
  const Frame frame(pose);
  for (std::size_t step = 0; step < track.states.size(); ++step) {
    const State& state = track.states[step];
    if (!state.valid) {
      history.insert(history.end(), HISTORY_CHANNELS, 0.0f);
      continue;
    }
    const Point position = frame.to_local(state.position);
    const Point velocity = frame.direction_to_local(state.velocity);
    append(history, {position.x / LENGTH_SCALE, position.y / LENGTH_SCALE});
    append(history, {velocity.x / SPEED_SCALE, velocity.y / SPEED_SCALE});
    append(history, unit_vector(wrap_angle(heading[step] - pose.heading)));
    history.push_back(1.0f);
  }
}

// Appends the futures of the agents along the lanes, each in its own frame.
void append_anchors(const Scene& scene, const std::vector<Agent>& agents, const std::vector<Pose>& poses,
                    std::size_t steps, const Routes& lanes, Floats& anchors) {
  std::vector<Mover> movers;
  for (std::size_t i = 0; i < agents.size(); ++i) {
    const Agent& agent = agents[i];
    const int object_type = scene.tracks[agent.track].object_type;
    Mover mover{poses[i], state_of(scene, agent).velocity, object_type, {}};
    const std::size_t gap = scene.num_observed() - 1 - agent.last;
    for (std::size_t step = 0; step <= steps; ++step) {
      mover.time_s.push_back(static_cast<double>(gap + step) * scene.step_s);
    }
    movers.push_back(std::move(mover));
  }
  const std::vector<LaneFutures> futures = lane_futures(lanes, movers);
  for (std::size_t i = 0; i < movers.size(); ++i) {
    const Frame frame(movers[i].pose);
    for (const Polyline& path : futures[i].path) {
      for (std::size_t step = 1; step <= steps; ++step) append(anchors, frame.to_local(path[step]));
    }
  }
}

}  // namespace

namespace {

// Returns the focal track, or the one seen last if it has no observed state in the scene's window.
const Track& seen_focal(const Scene& scene) {
  const Track* focal = &scene.tracks[scene.focal];
  if (focal->last_seen() >= 0) return *focal;
  for (const Track& track : scene.tracks) {
    if (track.last_seen() > focal->last_seen()) focal = &track;
  }
  require(focal->last_seen() >= 0, "tracks", "contain none that was observed within the history of the bundle");
  return *focal;
}

}  // namespace

std::vector<double> completed_headings(const Track& track, const Routes& lanes) {
  const auto last = static_cast<std::size_t>(track.last_seen());
  const std::vector<bool> known = heading_known(track.states);
  std::vector<double> heading = forward_heading(track.states, known);
  const double final = known[last] ? heading[last] : nearest_heading(lanes, track.states[last].position);
  for (std::size_t step = 0; step < heading.size(); ++step) {
    if (!known[step]) heading[step] = final;
  }
  return heading;
}

Pose focal_pose(const Scene& scene, const Routes& lanes) {
  const Track& track = seen_focal(scene);
  const auto last = static_cast<std::size_t>(track.last_seen());
  return {track.states[last].position, completed_headings(track, lanes)[last]};
}

AgentFeatures agent_features(const Scene& scene, Point origin, const FeatureConfig& config,
                             const Routes& lanes) {
  const std::vector<Agent> agents = select(scene, origin, config);
  std::vector<Pose> poses;
  poses.reserve(agents.size());
  AgentFeatures features;
  features.history.reserve(agents.size() * scene.num_observed() * HISTORY_CHANNELS);
  for (const Agent& agent : agents) {
    const Track& track = scene.tracks[agent.track];
    const State& state = state_of(scene, agent);
    const std::vector<double> heading = completed_headings(track, lanes);
    const Pose pose{state.position, heading[agent.last]};
    poses.push_back(pose);
    features.track.push_back(agent.track);
    features.track_id.push_back(track.track_id);
    append(features.position, pose.position - origin);
    features.heading.push_back(static_cast<float>(pose.heading));
    append(features.velocity, Frame(pose).direction_to_local(state.velocity));
    features.elapsed_s.push_back(static_cast<float>(agent.elapsed_s));
    features.object_type.push_back(config.omit.classes ? UNKNOWN_TYPE : track.object_type);
    append_history(track, heading, pose, features.history);
  }
  features.anchors.reserve(agents.size() * MODES * config.anchor_steps * 2);
  if (config.anchor_steps > 0) {
    append_anchors(scene, agents, poses, config.anchor_steps, lanes, features.anchors);
  }
  return features;
}

}  // namespace trajpred::onboard
