// A predictor's output for one scene: trajpred/data/forecast.py.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trajpred_onboard/arrays.hpp"
#include "trajpred_onboard/geometry.hpp"

namespace trajpred::onboard {

// Displacement per step (metres) below which the previous heading is kept.
inline constexpr double STILL_STEP = 0.05;

// K predicted futures (modes) of F steps for each of A tracks, in the frame of the map.
//
// Arrays are in C order: step f of mode k of track a is entry (a * modes + k) * horizon + f.
struct Forecast {
  // [A].
  std::vector<std::string> track_id;
  std::size_t modes = 0;
  std::size_t horizon = 0;
  // [A, K, F] metres; step f is f + 1 steps after the last observed one.
  std::vector<Point> trajectory;
  // [A, K]; sums to 1 over the modes.
  std::vector<double> probability;
  // [A, K, F] radians and m/s along each mode.
  std::vector<double> heading;
  std::vector<double> speed;
  // [A, K, F] metres: Laplace scales ahead and to the left of the last observed pose; empty if there are
  // none.
  std::vector<Point> scale;

  std::size_t size() const { return track_id.size(); }

  // Returns the index of step `step` of a mode in `trajectory`, `heading`, `speed` and `scale`.
  std::size_t index(std::size_t track, std::size_t mode, std::size_t step) const {
    return (track * modes + mode) * horizon + step;
  }

  // Throws DataError if a size, value or probability is invalid.
  void validate() const;
};

// Where the futures of a track start: its pose at the last observed step.
using Origins = std::vector<Pose>;

// Fills in heading and speed along each mode from the steps of its trajectory, and validates the forecast.
//
// `origins`: [A] where the first step starts, and the heading that is kept until a mode moves.
Forecast from_trajectories(Forecast forecast, const Origins& origins, double step_s);

// A track at its last observed pose.
struct LastSeen {
  std::string track_id;
  // In the frame of the map.
  Pose pose;
  // m/s, own frame.
  Point velocity;
  // Seconds until the last observed step.
  double elapsed_s;
};

// Converts a model's output, each track in its own frame, to the frame of the map.
//
// `trajectory`, `scale`: [A, K, F, 2] metres; `probability`: [A, K], normalised here.
Forecast from_local(const std::vector<LastSeen>& tracks, std::size_t modes, std::size_t horizon,
                    const Floats& trajectory, const Floats& scale, const Floats& probability, double step_s);

// Concatenates two forecasts of different tracks with equal numbers of modes and steps.
Forecast joined(Forecast first, const Forecast& second);

}  // namespace trajpred::onboard
