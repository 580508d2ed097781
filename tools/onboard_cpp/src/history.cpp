#include "trajpred_onboard/history.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "trajpred_onboard/clock.hpp"
#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/ragged.hpp"

namespace trajpred::onboard {

namespace {

// Seconds of positions to which a velocity is fitted.
constexpr double FIT_S = 1.0;

// Speed in m/s from which velocities are compared with positions.
constexpr double WALKING_SPEED = 1.0;
// Largest share of moving states whose velocities may contradict the positions.
constexpr double MOST_CONTRADICTING = 0.2;
// A velocity contradicts another one if they differ by this share of the larger one and this many m/s.
constexpr double CONTRADICTING = 0.4;
constexpr double SLACK = 1.0;

// Returns how many steps of `step_s` seconds a velocity is fitted to, the current one included.
double fit_steps(double step_s) {
  return std::max(2.0, std::floor(FIT_S / step_s + 0.49));  // a half is rounded down
}

double faster(const ComparedVelocity& pair) { return std::max(norm(pair.given), norm(pair.fitted)); }

bool contradicts(const ComparedVelocity& pair) {
  return norm(pair.given - pair.fitted) > CONTRADICTING * faster(pair) + SLACK;
}

bool is_zero(const ComparedVelocity& pair) { return norm(pair.given) == 0.0; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Describes how velocities of moving states contradict the positions; empty if no more than in real data.
std::string disagreement(const std::vector<ComparedVelocity>& compared) {
  // Programs write zeros for what they do not have.
  const bool is_unknown = std::all_of(compared.begin(), compared.end(), is_zero);
  std::vector<double> angles;
  double odd = 0.0;
  for (const ComparedVelocity& pair : compared) {
    if (!is_unknown && !contradicts(pair)) continue;
    odd += 1.0;
    if (is_zero(pair)) continue;
    angles.push_back(std::abs(wrap_angle(direction(pair.given) - direction(pair.fitted))));
  }
  const auto all = static_cast<double>(compared.size());
  if (odd <= MOST_CONTRADICTING * all) return "";
  std::string detail = "all of these are zero";
  if (!angles.empty()) {
    detail = "median angle between them: " + formatted("%.0f", median(angles) * 180.0 / PI) + " degrees";
  }
  return formatted("%.0f", 100.0 * (odd / all)) +
         "% of the velocities of moving road users contradict the positions: they must be in m/s along the x "
         "and y axes of the positions, not of the vehicle, and missing where unknown, not zero (" +
         detail + ")";
}

// Estimates the velocity of the latest state: the slope of a line fitted to the states of the last `window_s`
// seconds. If it is the only one, the mean velocity since the previous state; zero without any.
Point latest_velocity(const std::deque<TimedState>& states, double window_s) {
  const TimedState& latest = states.back();
  double n = 0.0;
  double sum_t = 0.0;
  double sum_tt = 0.0;
  Point sum_xy;
  Point sum_txy;
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    const double t = state->time_s - latest.time_s;
    if (t < -window_s) break;
    const Point xy = state->position - latest.position;
    n += 1.0;
    sum_t += t;
    sum_tt += t * t;
    sum_xy = sum_xy + xy;
    sum_txy = sum_txy + t * xy;
  }
  if (n > 1.0) return (1 / (n * sum_tt - sum_t * sum_t)) * (n * sum_txy - sum_t * sum_xy);
  if (states.size() == 1) return {};
  const TimedState& before = states[states.size() - 2];
  return (1 / (latest.time_s - before.time_s)) * (latest.position - before.position);
}

// Returns the known type detected most often; ties go to the first of OBJECT_TYPES.
int usual_type(const std::vector<TimedState>& states) {
  std::array<int, OBJECT_TYPES.size()> count{};
  for (const TimedState& state : states) ++count[static_cast<std::size_t>(state.object_type)];
  count[static_cast<std::size_t>(UNKNOWN_TYPE)] = 0;
  const auto most = std::max_element(count.begin(), count.end());
  return *most == 0 ? UNKNOWN_TYPE : static_cast<int>(most - count.begin());
}

}  // namespace

HistoryTable::HistoryTable(std::size_t length, double step_s, std::size_t max_tracks)
    : length_(length),
      step_s_(step_s),
      memory_s_(std::max(static_cast<double>(length) * step_s, SHORTEST_MEMORY_S)),
      max_tracks_(max_tracks) {}

void HistoryTable::clear() {
  times_s_.clear();
  tracks_.clear();
}

void HistoryTable::advance(double now_s) {
  const double oldest_s = now_s - memory_s_;
  const auto is_gone = [oldest_s](const Recorded& track) { return track.states.back().time_s <= oldest_s; };
  tracks_.erase(std::remove_if(tracks_.begin(), tracks_.end(), is_gone), tracks_.end());
  // Keep the last update before: states are interpolated between it and the next.
  while (times_s_.size() > 1 && times_s_[1] <= oldest_s) times_s_.pop_front();
  for (Recorded& track : tracks_) {
    while (track.states.front().time_s < times_s_.front()) track.states.pop_front();
  }
}

std::vector<std::string> HistoryTable::add(double time_s, const std::vector<Detection>& detections,
                                           double max_speed, double max_jump_m) {
  std::vector<std::string> jumped;
  if (detections.empty()) return jumped;
  const bool is_new_update = times_s_.empty() || time_s - times_s_.back() >= SAME_UPDATE_S;
  if (is_new_update) times_s_.push_back(time_s);
  const double now_s = times_s_.back();
  const double step_s = update_step_s();
  const double steps = fit_steps(step_s);
  const double window_s = (steps - 0.5) * step_s;  // half a step beyond the oldest
  std::unordered_map<std::string, std::size_t> row;
  for (std::size_t i = 0; i < tracks_.size(); ++i) row.emplace(tracks_[i].track_id, i);
  for (const Detection& detection : detections) {
    const auto [entry, is_new] = row.emplace(detection.track_id, tracks_.size());
    if (is_new) tracks_.emplace_back().track_id = detection.track_id;
    Recorded& track = tracks_[entry->second];
    std::deque<TimedState>& states = track.states;
    const bool is_repeated = !states.empty() && states.back().time_s == now_s;
    if (is_repeated) states.pop_back();
    if (!states.empty()) {
      const double distance_m = norm(detection.position - states.back().position);
      const double allowed_m = max_jump_m + max_speed * (now_s - states.back().time_s);
      if (distance_m > allowed_m) {
        states.clear();
        jumped.push_back(detection.track_id);
      }
    }
    if (states.empty()) {
      track.first_position = detection.position;
      track.has_travelled = false;
    }
    const double held = track.has_travelled ? states.back().heading : std::nan("");
    states.push_back(
        {now_s, detection.position, detection.velocity, detection.heading, detection.object_type});
    TimedState& state = states.back();
    const Point fitted = latest_velocity(states, window_s);
    const ComparedVelocity pair{state.velocity, fitted};
    if (std::isnan(state.velocity.x)) {
      state.velocity = norm(fitted) <= max_speed ? fitted : Point{};
    } else if (static_cast<double>(states.size()) >= steps && faster(pair) > WALKING_SPEED) {
      compared_.push_back(pair);
    }
    const Point away = state.position - track.first_position;
    const bool moved = norm(away) > MOVED_M;
    const bool travels = moved && norm(state.velocity) > STANDING_SPEED;
    track.has_travelled = track.has_travelled || travels;
    if (!std::isnan(state.heading)) continue;
    const bool creeps = moved && !track.has_travelled;
    if (travels) state.heading = given_heading(direction(state.velocity));
    else if (creeps) state.heading = given_heading(direction(away));
    else state.heading = held;
  }
  compare_velocities();
  forget();
  return jumped;
}

void HistoryTable::compare_velocities() {
  if (compared_.size() < COMPARED) return;
  if (velocity_problem_.empty()) velocity_problem_ = disagreement(compared_);
  compared_.clear();
}

std::vector<std::int64_t> HistoryTable::stamps_ns(double now_s) const {
  std::vector<std::int64_t> stamps;
  stamps.reserve(times_s_.size());
  for (const double time_s : times_s_) {
    stamps.push_back(static_cast<std::int64_t>(std::nearbyint((time_s - now_s) * 1e9)));
  }
  return stamps;
}

double HistoryTable::update_step_s() const { return regular_step_s(stamps_ns(times_s_.back())); }

Tracks HistoryTable::resampled(double now_s, double within_s) const {
  Tracks tracks;
  if (tracks_.empty()) return tracks;
  const std::vector<std::int64_t> stamps = stamps_ns(now_s);
  const double recorded_s = update_step_s();
  const double first_s = static_cast<double>(stamps.front()) / 1e9;
  const std::size_t before = std::min(whole_steps(-first_s, step_s_), length_ - 1);
  std::vector<double> grid;
  for (std::size_t i = 0; i <= before; ++i) grid.push_back(-static_cast<double>(before - i) * step_s_);
  std::vector<TimedState> states;
  tracks.reserve(tracks_.size());
  for (const Recorded& recorded : tracks_) {
    if (recorded.states.back().time_s < now_s - within_s) continue;
    states.assign(recorded.states.begin(), recorded.states.end());
    for (TimedState& state : states) state.time_s = std::nearbyint((state.time_s - now_s) * 1e9) / 1e9;
    std::vector<State> resampled = states_at(states, grid, recorded_s, step_s_);
    tracks.push_back({recorded.track_id, usual_type(states), UNSCORED, std::move(resampled)});
  }
  return tracks;
}

void HistoryTable::forget() {
  if (tracks_.size() <= max_tracks_) return;
  Rows rows(tracks_.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  const auto seen_later = [this](std::size_t a, std::size_t b) { return last_seen_s(a) > last_seen_s(b); };
  std::vector<Recorded> kept;
  for (const std::size_t row : smallest(std::move(rows), max_tracks_, seen_later)) {
    kept.push_back(std::move(tracks_[row]));
  }
  tracks_ = std::move(kept);
}

}  // namespace trajpred::onboard
