#include "trajpred_onboard/baselines.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "trajpred_onboard/agents.hpp"
#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/lane_futures.hpp"

namespace trajpred::onboard {

namespace {

// Returns the rows of `values` in descending order; ties keep their order.
Rows descending(const std::vector<double>& values) {
  Rows order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto larger = [&values](std::size_t a, std::size_t b) { return values[a] > values[b]; };
  std::stable_sort(order.begin(), order.end(), larger);
  return order;
}

// Rounds to nine digits: equal accelerations and decelerations are equally probable.
double rounded(double value) { return std::nearbyint(value * 1e9) / 1e9; }

// Appends the futures of a track, the most probable first.
void append(const LaneFutures& futures, Forecast& forecast) {
  std::vector<double> probability(futures.probability.begin(), futures.probability.end());
  std::vector<double> keys;
  for (double value : probability) keys.push_back(rounded(value));
  for (std::size_t mode : descending(keys)) {
    const Polyline& path = futures.path[mode];
    forecast.trajectory.insert(forecast.trajectory.end(), path.begin() + 1, path.end());
  }
  std::sort(probability.rbegin(), probability.rend());
  forecast.probability.insert(forecast.probability.end(), probability.begin(), probability.end());
}

// Returns a scene of some of the tracks, around the first of them.
Scene scene_of(const Scene& scene, const Rows& rows) {
  Scene part{scene.scenario_id, scene.step_s, 0, {}, scene.map, scene.routes};
  for (std::size_t row : rows) part.tracks.push_back(scene.tracks[row]);
  return part;
}

// Appends mode `from` of a track, with default scales if a rule gives none.
void append_mode(const Forecast& from, std::size_t track, std::size_t mode, double step_s, Forecast& to) {
  for (std::size_t step = 0; step < to.horizon; ++step) {
    const std::size_t i = from.index(track, mode, step);
    to.trajectory.push_back(from.trajectory[i]);
    to.heading.push_back(from.heading[i]);
    to.speed.push_back(from.speed[i]);
    const double time_s = static_cast<double>(step + 1) * step_s;
    to.scale.push_back(from.scale.empty() ? time_s * SCALE_RATE : from.scale[i]);
  }
}

}  // namespace

Forecast lane_following(const Scene& scene, std::size_t horizon) {
  require(horizon > 0, "horizon", "must be positive");
  scene.validate();
  std::shared_ptr<const Routes> routes = scene.routes;
  const bool is_known = routes && routes->map == scene.map;
  if (!is_known) {
    if (scene.map) scene.map->validate();
    routes = std::make_shared<const Routes>(Routes::of(scene.map));
  }
  const Routes& lanes = *routes;
  std::vector<Mover> movers;
  Forecast forecast;
  forecast.modes = MODES;
  forecast.horizon = horizon;
  for (const Track& track : scene.tracks) {
    const std::int64_t last = track.last_seen();
    if (last < 0) continue;
    const State& state = track.states[static_cast<std::size_t>(last)];
    const double heading = completed_headings(track, lanes)[static_cast<std::size_t>(last)];
    Mover mover{{state.position, heading}, state.velocity, track.object_type, {}};
    const std::size_t gap = scene.num_observed() - 1 - static_cast<std::size_t>(last);
    for (std::size_t step = 0; step <= horizon; ++step) {
      mover.time_s.push_back(static_cast<double>(gap + step) * scene.step_s);
    }
    movers.push_back(std::move(mover));
    forecast.track_id.push_back(track.track_id);
  }
  Origins origins;
  const std::vector<LaneFutures> futures = lane_futures(lanes, movers);
  for (std::size_t i = 0; i < movers.size(); ++i) {
    origins.push_back({futures[i].path[0][0], movers[i].pose.heading});
    append(futures[i], forecast);
  }
  return from_trajectories(std::move(forecast), origins, scene.step_s);
}

Forecast rule_forecast(const Rule& rule, const Scene& scene, const Rows& rows, std::size_t modes,
                       std::size_t horizon) {
  const Forecast found = rule(scene_of(scene, rows), horizon);
  require(found.modes > 0 && found.horizon == horizon, "fallback", "has other steps than the bundle");
  found.validate();
  Forecast forecast;
  forecast.track_id = found.track_id;
  forecast.modes = modes;
  forecast.horizon = horizon;
  for (std::size_t track = 0; track < found.size(); ++track) {
    const auto first = found.probability.begin() + static_cast<std::ptrdiff_t>(track * found.modes);
    const std::vector<double> probability(first, first + static_cast<std::ptrdiff_t>(found.modes));
    const Rows order = descending(probability);
    std::vector<double> weight(modes, 0.0);
    double total = 0.0;
    for (std::size_t mode = 0; mode < modes; ++mode) {
      const std::size_t from = order[std::min(mode, order.size() - 1)];
      if (mode < order.size()) weight[mode] = std::pow(probability[from], CONFIDENCE_POWER);
      total += weight[mode];
      append_mode(found, track, from, scene.step_s, forecast);
    }
    for (double value : weight) forecast.probability.push_back(value / total);
  }
  forecast.validate();
  return forecast;
}

}  // namespace trajpred::onboard
