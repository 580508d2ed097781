// Time stamps of updates: the step between them, and lost updates: trajpred/data/time.py.
#pragma once

#include <cstdint>
#include <vector>

namespace trajpred::onboard {

// Between updates farther apart than this (in steps), updates were lost.
inline constexpr double GAP_STEPS = 1.5;
// Largest difference (share of a step) between times that count as equal.
inline constexpr double SAME_TIME = 0.01;
// Updates less than this many seconds apart count as one; at 200 Hz they are separate.
inline constexpr double SAME_UPDATE_S = (1 - SAME_TIME) * 0.005;
// Seconds between steps assumed for a single update.
inline constexpr double STEP_S = 0.1;

// Returns the longest time (s) between two states across which a grid of `step_s` seconds interpolates;
// `recorded_s` are the usual seconds between states.
double longest_gap_s(double recorded_s, double step_s);

// Returns the mean seconds between the steps of updates, including lost updates. The stamps (nanoseconds, at
// least one) increase.
double regular_step_s(const std::vector<std::int64_t>& stamps_ns);

}  // namespace trajpred::onboard
