// The recent past of every track, at its true times: trajpred/onboard/history.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "trajpred_onboard/scenario.hpp"
#include "trajpred_onboard/time_grid.hpp"

namespace trajpred::onboard {

// Least seconds kept, so that even for the shortest history, states once a second are interpolated.
inline constexpr double SHORTEST_MEMORY_S = 2.0;
// Moving states whose given velocities are compared with the positions together.
inline constexpr std::size_t COMPARED = 500;

// A validated detection of one track. Heading and velocity are NaN where unknown.
struct Detection {
  std::string track_id;
  Point position;
  double heading;
  Point velocity;
  int object_type;
};

// A given velocity, and the one fitted to the positions.
struct ComparedVelocity {
  Point given;
  Point fitted;
};

// The states of the tracks detected within a model's history.
//
// A missing velocity or heading is derived from the states so far when its state is added: the slope of a
// line fitted to the positions of the last second, and the latest direction of travel. Beyond `max_tracks`
// tracks, those not seen for longest are removed.
class HistoryTable {
 public:
  // `length` steps of `step_s` seconds.
  HistoryTable(std::size_t length, double step_s, std::size_t max_tracks);

  double step_s() const { return step_s_; }
  // Seconds after its last detection at which a track is removed.
  double memory_s() const { return memory_s_; }
  std::size_t size() const { return tracks_.size(); }

  // Removes all tracks.
  void clear();

  // Removes states older than the memory at `now_s`.
  void advance(double now_s);

  // Adds detections at `time_s`, which must not be before earlier ones.
  //
  // Updates within SAME_UPDATE_S of each other count as one, at the time of the first; detections replace
  // earlier ones of the same track and update. A track that moved by more than `max_jump_m` plus the distance
  // at `max_speed` (m/s) is another object with a reused id: its history is dropped, and its id returned.
  std::vector<std::string> add(double time_s, const std::vector<Detection>& detections, double max_speed,
                               double max_jump_m);

  // Describes how given velocities contradict the positions; empty as long as they do not.
  const std::string& velocity_problem() const { return velocity_problem_; }

  // Returns the id of a track; oldest tracks first.
  const std::string& track_id(std::size_t row) const { return tracks_[row].track_id; }

  // Returns the time of the latest detection of a track.
  double last_seen_s(std::size_t row) const { return tracks_[row].states.back().time_s; }

  // Returns the tracks seen in the last `within_s` seconds, at the steps of the model until `now_s`: at most
  // `length` and at least one. A track may have no valid step. Its type is the most frequent known one of its
  // states.
  Tracks resampled(double now_s, double within_s) const;

 private:
  struct Recorded {
    std::string track_id;
    // Position where it was first seen, and whether it has travelled since.
    Point first_position;
    bool has_travelled = false;
    // At the times of updates.
    std::deque<TimedState> states;
  };

  // Returns the times of the updates, in nanoseconds since `now_s`.
  std::vector<std::int64_t> stamps_ns(double now_s) const;

  // Returns the usual seconds between updates.
  double update_step_s() const;

  // Compares the given velocities with the fitted ones once there are COMPARED of them.
  void compare_velocities();

  // Removes the tracks not seen for longest beyond the limit.
  void forget();

  std::size_t length_;
  double step_s_;
  double memory_s_;
  std::size_t max_tracks_;
  // Times of the updates, in seconds.
  std::deque<double> times_s_;
  std::vector<Recorded> tracks_;
  // Velocities of moving states, to be compared.
  std::vector<ComparedVelocity> compared_;
  std::string velocity_problem_;
};

}  // namespace trajpred::onboard
