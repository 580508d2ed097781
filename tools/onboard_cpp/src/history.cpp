#include "trajpred_onboard/history.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "trajpred_onboard/ragged.hpp"

namespace trajpred::onboard {

namespace {

bool any_valid(const std::vector<State>& states) {
  return std::any_of(states.begin(), states.end(), [](const State& state) { return state.valid; });
}

// Returns the steps since the last valid state; 0 without any.
std::size_t steps_since(const std::vector<State>& states) {
  for (std::size_t steps = 0; steps < states.size(); ++steps) {
    if (states[states.size() - 1 - steps].valid) return steps;
  }
  return 0;
}

bool is_complete(const State& state) {
  return !state.valid || (std::isfinite(state.heading) && is_finite(state.velocity));
}

// Derives missing headings and velocities from the positions.
void complete(std::vector<State>& states, double step_s) {
  std::vector<Point> velocity = causal_velocity(states, step_s);
  for (std::size_t i = 0; i < states.size(); ++i) {
    const Point measured = states[i].velocity;
    if (std::isfinite(measured.x)) velocity[i].x = measured.x;
    if (std::isfinite(measured.y)) velocity[i].y = measured.y;
  }
  const std::vector<double> heading = causal_heading(velocity, states);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!states[i].valid) continue;
    states[i].velocity = velocity[i];
    if (!std::isfinite(states[i].heading)) states[i].heading = heading[i];
  }
}

}  // namespace

HistoryTable::HistoryTable(std::size_t length, double step_s, std::size_t max_tracks)
    : length_(length), step_s_(step_s), max_tracks_(max_tracks) {}

void HistoryTable::clear() { tracks_.clear(); }

void HistoryTable::advance(std::size_t steps) {
  if (steps == 0) return;
  const auto shift = static_cast<std::ptrdiff_t>(std::min(steps, length_));
  for (Track& track : tracks_) {
    std::move(track.states.begin() + shift, track.states.end(), track.states.begin());
    std::fill(track.states.end() - shift, track.states.end(), State{});
  }
  const auto is_gone = [](const Track& track) { return !any_valid(track.states); };
  tracks_.erase(std::remove_if(tracks_.begin(), tracks_.end(), is_gone), tracks_.end());
}

std::vector<std::string> HistoryTable::add(const std::vector<Detection>& states, double max_speed,
                                           double max_jump_m) {
  std::unordered_map<std::string, std::size_t> row;
  for (std::size_t i = 0; i < tracks_.size(); ++i) row.emplace(tracks_[i].track_id, i);
  std::vector<std::string> jumped;
  for (const Detection& detection : states) {
    const auto [entry, is_new] = row.emplace(detection.track_id, tracks_.size());
    if (is_new) tracks_.push_back({detection.track_id, 0, UNSCORED, std::vector<State>(length_)});
    Track& track = tracks_[entry->second];
    if (!is_new) {
      const std::size_t steps = steps_since(track.states);
      const Point previous = track.states[length_ - 1 - steps].position;
      const auto passed = static_cast<double>(std::max<std::size_t>(steps, 1));
      const double allowed_m = max_jump_m + max_speed * step_s_ * passed;
      if (norm(detection.position - previous) > allowed_m) {
        std::fill(track.states.begin(), track.states.end(), State{});
        jumped.push_back(detection.track_id);
      }
    }
    track.states.back() = {true, detection.position, detection.heading, detection.velocity};
    track.object_type = detection.object_type;
  }
  forget();
  return jumped;
}

std::size_t HistoryTable::steps_since_seen(std::size_t row) const { return steps_since(tracks_[row].states); }

Tracks HistoryTable::tracks() const {
  Tracks tracks = tracks_;
  for (Track& track : tracks) {
    const bool complete_already = std::all_of(track.states.begin(), track.states.end(), is_complete);
    if (!complete_already) complete(track.states, step_s_);
  }
  return tracks;
}

void HistoryTable::forget() {
  if (tracks_.size() <= max_tracks_) return;
  std::vector<std::size_t> since(tracks_.size());
  Rows rows(tracks_.size());
  for (std::size_t i = 0; i < tracks_.size(); ++i) {
    since[i] = steps_since_seen(i);
    rows[i] = i;
  }
  const auto seen_later = [&since](std::size_t a, std::size_t b) { return since[a] < since[b]; };
  Tracks kept;
  for (std::size_t row : smallest(std::move(rows), max_tracks_, seen_later)) {
    kept.push_back(std::move(tracks_[row]));
  }
  tracks_ = std::move(kept);
}

void TimeGrid::start(double time_s) {
  start_s_ = time_s;
  step_ = 0;
  latest_s_ = time_s;
  regular_s_ = time_s;
  regular_step_ = 0;
}

std::size_t TimeGrid::advance(double time_s) {
  const double exact = (time_s - start_s_) / step_s_;
  const std::int64_t previous = step_;
  step_ = static_cast<std::int64_t>(std::nearbyint(exact));
  start_s_ += FOLLOW * (exact - static_cast<double>(step_)) * step_s_;
  const std::int64_t steps = step_ - previous;
  const double passed_s = time_s - latest_s_;
  const double expected_s = static_cast<double>(steps) * step_s_;
  if (std::abs(passed_s - expected_s) > REGULAR * expected_s) {
    regular_s_ = time_s;
    regular_step_ = step_;
  }
  latest_s_ = time_s;
  return static_cast<std::size_t>(std::max<std::int64_t>(steps, 0));
}

double TimeGrid::measured_step_s() const {
  const std::int64_t steps = step_ - regular_step_;
  if (steps == 0) return step_s_;
  return (latest_s_ - regular_s_) / static_cast<double>(steps);
}

}  // namespace trajpred::onboard
