#include "trajpred_onboard/forecast.hpp"

#include <cmath>
#include <utility>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

// Tolerance of the sum of a track's probabilities.
constexpr double SUM_TOLERANCE = 1e-3;

void require_finite(const std::vector<double>& values, const std::string& name) {
  for (double value : values) require(std::isfinite(value), name, "is not finite");
}

void require_finite(const std::vector<Point>& values, const std::string& name) {
  for (const Point value : values) require(is_finite(value), name, "is not finite");
}

template <class Values>
void append(Values& values, const Values& others) {
  values.insert(values.end(), others.begin(), others.end());
}

// Appends the probabilities of one track, so that they sum to 1 in double precision.
void append_normalised(const Floats& values, std::size_t first, std::size_t modes,
                       std::vector<double>& result) {
  double total = 0.0;
  for (std::size_t mode = 0; mode < modes; ++mode) total += values[first + mode];
  for (std::size_t mode = 0; mode < modes; ++mode) result.push_back(values[first + mode] / total);
}

}  // namespace

void Forecast::validate() const {
  const std::size_t rows = size() * modes;
  const std::size_t steps = rows * horizon;
  require(trajectory.size() == steps, "trajectory", "has another size than tracks, modes and steps");
  require(heading.size() == steps, "heading", "has another size than the trajectory");
  require(speed.size() == steps, "speed", "has another size than the trajectory");
  require(scale.empty() || scale.size() == steps, "scale", "has another size than the trajectory");
  require(probability.size() == rows, "probability", "has another size than tracks and modes");
  require_finite(trajectory, "trajectory");
  require_finite(heading, "heading");
  require_finite(speed, "speed");
  require_finite(scale, "scale");
  require_finite(probability, "probability");
  for (std::size_t track = 0; track < size(); ++track) {
    double total = 0.0;
    for (std::size_t mode = 0; mode < modes; ++mode) {
      const double share = probability[track * modes + mode];
      require(share >= 0, "probability", "has a negative entry");
      total += share;
    }
    require(std::abs(total - 1) <= SUM_TOLERANCE, "probability", "does not sum to 1 over the modes");
  }
}

Forecast from_trajectories(Forecast forecast, const Origins& origins, double step_s) {
  const std::size_t steps = forecast.size() * forecast.modes * forecast.horizon;
  require(forecast.trajectory.size() == steps, "trajectory", "has another size than tracks, modes and steps");
  require(origins.size() == forecast.size(), "origins", "has another size than the tracks");
  for (std::size_t track = 0; track < forecast.size(); ++track) {
    for (std::size_t mode = 0; mode < forecast.modes; ++mode) {
      Pose previous = origins[track];
      for (std::size_t step = 0; step < forecast.horizon; ++step) {
        const Point position = forecast.trajectory[forecast.index(track, mode, step)];
        const Point moved = position - previous.position;
        const double length = norm(moved);
        previous.position = position;
        if (length > STILL_STEP) previous.heading = direction(moved);
        forecast.heading.push_back(previous.heading);
        forecast.speed.push_back(length / step_s);
      }
    }
  }
  forecast.validate();
  return forecast;
}

Forecast from_local(const std::vector<LastSeen>& tracks, std::size_t modes, std::size_t horizon,
                    const Floats& trajectory, const Floats& scale, const Floats& probability, double step_s) {
  Forecast forecast;
  forecast.modes = modes;
  forecast.horizon = horizon;
  const std::size_t steps = tracks.size() * modes * horizon;
  const bool complete = trajectory.size() >= 2 * steps && scale.size() >= 2 * steps;
  require(complete, "trajectory", "the decoder's output has another size than the bundle says");
  require(probability.size() >= tracks.size() * modes, "probability",
          "has another size than the bundle says");
  forecast.trajectory.reserve(steps);
  forecast.scale.reserve(steps);
  Origins origins;
  for (std::size_t track = 0; track < tracks.size(); ++track) {
    const LastSeen& seen = tracks[track];
    const Frame frame(seen.pose);
    forecast.track_id.push_back(seen.track_id);
    // Modes start at the last observed step; a track may have been last seen earlier.
    origins.push_back({frame.to_global(seen.elapsed_s * seen.velocity), seen.pose.heading});
    append_normalised(probability, track * modes, modes, forecast.probability);
    const std::size_t first = track * modes * horizon;
    for (std::size_t i = first; i < first + modes * horizon; ++i) {
      forecast.trajectory.push_back(frame.to_global({trajectory[2 * i], trajectory[2 * i + 1]}));
      forecast.scale.push_back({scale[2 * i], scale[2 * i + 1]});
    }
  }
  return from_trajectories(std::move(forecast), origins, step_s);
}

Forecast joined(Forecast first, const Forecast& second) {
  append(first.track_id, second.track_id);
  append(first.trajectory, second.trajectory);
  append(first.probability, second.probability);
  append(first.heading, second.heading);
  append(first.speed, second.speed);
  append(first.scale, second.scale);
  return first;
}

}  // namespace trajpred::onboard
