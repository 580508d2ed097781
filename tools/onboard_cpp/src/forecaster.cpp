#include "trajpred_onboard/forecaster.hpp"

#include <algorithm>
#include <utility>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

// Returns the rows of the targets, each once.
Rows rows_of(const AgentFeatures& agents, const Targets& targets) {
  Rows rows;
  if (!targets) {
    for (std::size_t row = 0; row < agents.size(); ++row) rows.push_back(row);
    return rows;
  }
  for (const std::string& name : *targets) {
    const auto place = std::find(agents.track_id.begin(), agents.track_id.end(), name);
    if (place == agents.track_id.end()) continue;
    const auto row = static_cast<std::size_t>(place - agents.track_id.begin());
    const bool repeated = std::count(rows.begin(), rows.end(), row) > 0;
    if (!repeated) rows.push_back(row);
  }
  return rows;
}

// Returns an agent at its last observed pose, in the frame of the map.
LastSeen last_seen(const AgentFeatures& agents, std::size_t row, Point origin) {
  const Point local{agents.position[2 * row], agents.position[2 * row + 1]};
  const Pose pose{local + origin, agents.heading[row]};
  const Point velocity{agents.velocity[2 * row], agents.velocity[2 * row + 1]};
  return {agents.track_id[row], pose, velocity, agents.elapsed_s[row]};
}

Floats taken(Arrays& outputs, const std::string& name) {
  return std::get<Floats>(std::move(outputs.at(name).values));
}

}  // namespace

Forecaster::Forecaster(Bundle bundle, std::unique_ptr<Graphs> graphs)
    : Encoder(std::move(bundle), std::move(graphs)) {
  require_graph("decoder");
}

Forecast Forecaster::forecast(const Scene& scene, const Targets& targets) {
  LocalScene local = localise(scene);
  run_encoder(local);
  const Rows rows = rows_of(local.agents, targets);
  return rows.empty() ? empty_forecast() : decode(local, rows);
}

Forecast Forecaster::empty_forecast() const {
  Forecast forecast;
  forecast.modes = bundle().modes();
  forecast.horizon = bundle().horizon();
  return forecast;
}

Forecast Forecaster::decode(LocalScene& scene, const Rows& rows) {
  Arrays outputs;
  {
    const Timed timed(stage_ms_, "decoder");
    Integers target(rows.begin(), rows.end());
    if (bundle().sizes()) target.resize(bundle().sizes()->agents, 0);
    const auto count = static_cast<std::int64_t>(target.size());
    const auto modes = static_cast<std::int64_t>(bundle().modes());
    const auto horizon = static_cast<std::int64_t>(bundle().horizon());
    const Shape paths{count, modes, horizon, 2};
    scene.inputs["target"] = {{count}, std::move(target)};
    outputs = run("decoder", scene.inputs,
                  {{"trajectory", paths}, {"scale", paths}, {"probability", {count, modes}}});
  }
  const Timed timed(stage_ms_, "output");
  std::vector<LastSeen> tracks;
  for (std::size_t row : rows) tracks.push_back(last_seen(scene.agents, row, scene.origin));
  const Floats trajectory = taken(outputs, "trajectory");
  const Floats scale = taken(outputs, "scale");
  const Floats probability = taken(outputs, "probability");
  const std::size_t modes = bundle().modes();
  return from_local(tracks, modes, bundle().horizon(), trajectory, scale, probability, scene.step_s);
}

}  // namespace trajpred::onboard
