// Time stamps of updates: the step between them, and those that were lost: trajpred/data/time.py.
#pragma once

#include <cstdint>
#include <vector>

namespace trajpred::onboard {

// Updates farther apart than this, in steps, have lost ones between them.
inline constexpr double GAP_STEPS = 1.5;
// Fewest seconds between updates: closer ones count as one.
inline constexpr double SHORTEST_STEP_S = 0.005;
// Seconds between steps that are assumed of a single update.
inline constexpr double STEP_S = 0.1;

// Returns the steps of updates, 0 for the first, on a regular grid with gaps where updates are lost. There must
// be a stamp; they increase (nanoseconds).
std::vector<std::int64_t> frame_steps(const std::vector<std::int64_t>& stamps_ns);

// Returns the mean seconds between the steps of updates, those of lost updates included.
double regular_step_s(const std::vector<std::int64_t>& stamps_ns);

}  // namespace trajpred::onboard
