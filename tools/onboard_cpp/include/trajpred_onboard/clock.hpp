// Time stamps of updates: the step between them, and those that were lost: trajpred/data/time.py.
#pragma once

#include <cstdint>
#include <vector>

namespace trajpred::onboard {

// Updates farther apart than this, in steps, have lost ones between them.
inline constexpr double GAP_STEPS = 1.5;
// Share of a step by which times may differ and still be the same.
inline constexpr double SAME_TIME = 0.01;
// Updates less than this many seconds apart count as one: of 200 Hz, they are apart.
inline constexpr double SAME_UPDATE_S = (1 - SAME_TIME) * 0.005;
// Seconds between steps that are assumed of a single update.
inline constexpr double STEP_S = 0.1;

// Returns the longest seconds between two states that are interpolated to a grid of `step_s` seconds;
// `recorded_s` are the usual seconds between states.
double longest_gap_s(double recorded_s, double step_s);

// Returns the mean seconds between the steps of updates, those of lost updates included. There must be a stamp;
// they increase (nanoseconds).
double regular_step_s(const std::vector<std::int64_t>& stamps_ns);

}  // namespace trajpred::onboard
