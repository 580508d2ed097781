// Forecasts without a model, as a fallback: trajpred/predictors/baselines.py, and rules as called by the
// runtime: trajpred/onboard/forecaster.py.
#pragma once

#include <cstddef>
#include <functional>

#include "trajpred_onboard/forecast.hpp"
#include "trajpred_onboard/ragged.hpp"
#include "trajpred_onboard/scenario.hpp"

namespace trajpred::onboard {

// Forecasts the observed tracks of a scene for a number of steps, such as lane_following().
using Rule = std::function<Forecast(const Scene& scene, std::size_t horizon)>;

// Growth (m/s) of the Laplace scales ahead and to the left if a rule gives none.
inline constexpr Point SCALE_RATE = {0.4, 0.2};
// Power of a rule's probabilities, which are overconfident.
inline constexpr double CONFIDENCE_POWER = 0.6;

// Forecasts six futures of every track along the lanes and at several speeds, the most probable first.
Forecast lane_following(const Scene& scene, std::size_t horizon);

// Forecasts the tracks `rows` by `rule`, as `modes` modes of `horizon` steps.
//
// Excess modes are dropped, least probable first; missing ones are copies of the last mode with probability
// 0. Probabilities are raised to CONFIDENCE_POWER and sum to 1.
Forecast rule_forecast(const Rule& rule, const Scene& scene, const Rows& rows, std::size_t modes,
                       std::size_t horizon);

}  // namespace trajpred::onboard
