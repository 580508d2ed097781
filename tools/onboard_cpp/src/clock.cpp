#include "trajpred_onboard/clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace trajpred::onboard {

namespace {

// Returns the interval between two updates without a lost one: the median of those that are not much longer
// than the lower quartile.
double usual(std::vector<double> intervals) {
  std::sort(intervals.begin(), intervals.end());
  const double short_ns = intervals[(intervals.size() - 1) / 4];
  const auto end = std::upper_bound(intervals.begin(), intervals.end(), GAP_STEPS * short_ns);
  const auto count = static_cast<std::size_t>(end - intervals.begin());
  const double upper = intervals[count / 2];
  return count % 2 == 1 ? upper : (intervals[count / 2 - 1] + upper) / 2;
}

}  // namespace

std::vector<std::int64_t> frame_steps(const std::vector<std::int64_t>& stamps_ns) {
  std::vector<double> intervals;
  for (std::size_t i = 1; i < stamps_ns.size(); ++i) {
    intervals.push_back(static_cast<double>(stamps_ns[i] - stamps_ns[i - 1]));
  }
  std::vector<std::int64_t> steps = {0};
  if (intervals.empty()) return steps;
  const auto [shortest, longest] = std::minmax_element(intervals.begin(), intervals.end());
  const bool is_regular = *longest <= GAP_STEPS * *shortest;
  const double usual_ns = is_regular ? 0.0 : usual(intervals);
  for (const double interval : intervals) {
    const double passed = is_regular ? 1.0 : std::max(std::ceil(interval / usual_ns - GAP_STEPS) + 1, 1.0);
    steps.push_back(steps.back() + static_cast<std::int64_t>(passed));
  }
  return steps;
}

double regular_step_s(const std::vector<std::int64_t>& stamps_ns) {
  const std::int64_t steps = frame_steps(stamps_ns).back();
  if (steps == 0) return STEP_S;
  return static_cast<double>(stamps_ns.back() - stamps_ns.front()) / 1e9 / static_cast<double>(steps);
}

}  // namespace trajpred::onboard
