// The recent past of every track, and the model's time grid: trajpred/onboard/history.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trajpred_onboard/scenario.hpp"

namespace trajpred::onboard {

// Share of its offset from an update by which the time grid moves towards that update.
inline constexpr double FOLLOW = 0.1;
// Largest difference of an interval between updates from whole steps (as a share of them) that is a clock's
// rate and not jitter.
inline constexpr double REGULAR = 1e-4;

// A validated detection of one track. Heading and velocity are NaN where unknown.
struct Detection {
  std::string track_id;
  Point position;
  double heading;
  Point velocity;
  int object_type;
};

// The last `length` steps of the tracks detected in them; the last state is that of the current step.
//
// Of more than `max_tracks` tracks, those not seen for longest are removed.
class HistoryTable {
 public:
  HistoryTable(std::size_t length, double step_s, std::size_t max_tracks);

  std::size_t length() const { return length_; }
  double step_s() const { return step_s_; }
  std::size_t size() const { return tracks_.size(); }

  // Removes all tracks.
  void clear();

  // Shifts the table by `steps`; tracks without a detection left are removed.
  void advance(std::size_t steps);

  // Writes detections into the current step, over earlier ones of the same track.
  //
  // A track that moved by more than `max_jump_m` plus the distance at `max_speed` (m/s) is another object
  // under the same id: its history is dropped, and its id returned.
  std::vector<std::string> add(const std::vector<Detection>& states, double max_speed, double max_jump_m);

  // Returns the id of a track; oldest tracks first.
  const std::string& track_id(std::size_t row) const { return tracks_[row].track_id; }

  // Returns the steps since the latest detection of a track.
  std::size_t steps_since_seen(std::size_t row) const;

  // Returns all tracks; missing headings and velocities follow from positions.
  Tracks tracks() const;

 private:
  // Removes the tracks not seen for longest beyond the limit.
  void forget();

  std::size_t length_;
  double step_s_;
  std::size_t max_tracks_;
  // Headings and velocities are NaN where unknown.
  Tracks tracks_;
};

// Counts the model's time steps between updates of a tracker whose clock jitters and starts anywhere.
//
// The grid slowly follows the updates, so that steady updates end up in the middle of their steps. On a fixed
// grid a tracker whose first update came half a step late would be rounded up or down by chance ever after.
class TimeGrid {
 public:
  explicit TimeGrid(double step_s) : step_s_(step_s) {}

  // Restarts with `time_s` in the middle of a step.
  void start(double time_s);

  // Returns the number of steps from the previous update to this one, which must not be earlier.
  std::size_t advance(double time_s);

  // Returns the mean seconds between steps since the updates have been regular, as recordings measure it.
  double measured_step_s() const;

 private:
  double step_s_;
  double start_s_ = 0.0;
  std::int64_t step_ = 0;
  double latest_s_ = 0.0;
  double regular_s_ = 0.0;
  std::int64_t regular_step_ = 0;
};

}  // namespace trajpred::onboard
