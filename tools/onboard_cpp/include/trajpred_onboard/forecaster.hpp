// Tracks and map in the map's frame -> futures: trajpred/onboard/forecaster.py.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trajpred_onboard/encoder.hpp"
#include "trajpred_onboard/forecast.hpp"

namespace trajpred::onboard {

// Ids of the tracks to predict; nothing for all.
using Targets = std::optional<std::vector<std::string>>;

// Forecasts whole scenes with a bundle that has a decoder; StreamingForecaster also keeps histories. Not
// thread-safe, like Encoder.
class Forecaster : public Encoder {
 public:
  // Throws DataError if the bundle lacks a graph, or a graph has other inputs, outputs or sizes.
  Forecaster(Bundle bundle, std::unique_ptr<Graphs> graphs);

  // Predicts the agents of a scene, in the frame of its map; targets that are not agents are omitted. Throws
  // DataError if the scene is invalid or its step differs from the bundle's.
  Forecast forecast(const Scene& scene, const Targets& targets = {});

  // Returns a forecast of no agents.
  Forecast empty_forecast() const;

 private:
  Forecast decode(LocalScene& scene, const Rows& rows);
};

}  // namespace trajpred::onboard
