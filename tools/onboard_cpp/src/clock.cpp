#include "trajpred_onboard/clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace trajpred::onboard {

namespace {

// Relative difference up to which two steps count as equal, due to clock jitter.
constexpr double JITTER = 0.1;
// Largest scatter of times (share of a step) around a grid that clearly fits.
constexpr double CLEAR = 0.12;
// Few updates are lost if the recorded time is at most this multiple of their number times the median
// interval.
constexpr double FEW_LOST = 1.15;
// Share of an update's delay by which a clock follows the update.
constexpr double FOLLOWED = 0.2;
// How often the step of a grid is refitted.
constexpr int REFINEMENTS = 3;

// A grid fitted to times: its step, and the times' scatter around it, in steps.
struct Grid {
  double step;
  double spread;
};

double mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Returns the median of the first `count` of ascending values.
double median(const std::vector<double>& values, std::size_t count) {
  const double upper = values[count / 2];
  return count % 2 == 1 ? upper : (values[count / 2 - 1] + upper) / 2;
}

// Returns the nearest steps of a grid, counted by a clock that follows the times.
std::vector<double> nearest_steps(const std::vector<double>& since, double step) {
  std::vector<double> steps;
  double count = 0.0;
  double expected = 0.0;
  for (const double time : since) {
    const double passed = std::max(std::floor((time - expected) / step + 0.5), 0.0);
    count += passed;
    expected += passed * step;
    expected += FOLLOWED * (time - expected);
    steps.push_back(count);
  }
  return steps;
}

// Fits a grid of about this step to times.
Grid refined(const std::vector<double>& since, double step) {
  const double middle = mean(since);
  const auto count = static_cast<double>(since.size());
  Grid grid = {step, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < REFINEMENTS; ++i) {
    const std::vector<double> steps = nearest_steps(since, grid.step);
    if (steps.back() == 0.0) break;
    const double centre = mean(steps);
    double both = 0.0;
    double square = 0.0;
    for (std::size_t k = 0; k < steps.size(); ++k) {
      both += (steps[k] - centre) * (since[k] - middle);
      square += (steps[k] - centre) * (steps[k] - centre);
    }
    grid.step = both / square;
    double apart = 0.0;
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const double distance = since[k] - middle - grid.step * (steps[k] - centre);
      apart += distance * distance;
    }
    grid.spread = std::sqrt(apart / count) / grid.step;
  }
  return grid;
}

// Returns the interval between consecutive updates, from times since the first.
double usual(const std::vector<double>& since) {
  std::vector<double> intervals;
  for (std::size_t i = 1; i < since.size(); ++i) intervals.push_back(since[i] - since[i - 1]);
  std::sort(intervals.begin(), intervals.end());
  const double short_ns = intervals[(intervals.size() - 1) / 4];
  const auto end = std::upper_bound(intervals.begin(), intervals.end(), GAP_STEPS * short_ns);
  const double single = median(intervals, static_cast<std::size_t>(end - intervals.begin()));
  const double middle = median(intervals, intervals.size());
  const Grid grid = refined(since, single);
  const bool few_lost = since.back() <= FEW_LOST * middle * static_cast<double>(intervals.size());
  return grid.spread > CLEAR && few_lost ? refined(since, middle).step : grid.step;
}

// Returns whether no update is lost or very late.
bool is_regular(const std::vector<double>& since) {
  double shortest = std::numeric_limits<double>::infinity();
  double longest = 0.0;
  for (std::size_t i = 1; i < since.size(); ++i) {
    shortest = std::min(shortest, since[i] - since[i - 1]);
    longest = std::max(longest, since[i] - since[i - 1]);
  }
  return since.size() < 2 || longest <= GAP_STEPS * shortest;
}

// Returns the number of steps from the first update to the last, including lost updates.
double passed_steps(const std::vector<double>& since) {
  if (is_regular(since)) return static_cast<double>(since.size()) - 1;
  const std::vector<double> steps = nearest_steps(since, usual(since));
  // No two updates share a step: if two fall on one, those before move back.
  double first = steps.front();
  for (std::size_t i = 0; i < steps.size(); ++i) first = std::min(first, steps[i] - static_cast<double>(i));
  return steps.back() - first;
}

}  // namespace

double longest_gap_s(double recorded_s, double step_s) {
  const bool is_longer = recorded_s > (1 + JITTER) * step_s;
  return GAP_STEPS * (is_longer ? recorded_s : step_s) + SAME_TIME * step_s;
}

double regular_step_s(const std::vector<std::int64_t>& stamps_ns) {
  std::vector<double> since;
  for (const std::int64_t stamp : stamps_ns) since.push_back(static_cast<double>(stamp - stamps_ns.front()));
  const double steps = passed_steps(since);
  return steps == 0.0 ? STEP_S : since.back() / 1e9 / steps;
}

}  // namespace trajpred::onboard
