#include "trajpred_onboard/scenario.hpp"

#include <algorithm>
#include <cmath>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

void validate(const Track& track, std::size_t steps) {
  if (!is_name(track.track_id)) {
    throw DataError("is not a printable name: " + quoted(track.track_id), "track_id");
  }
  require(track.states.size() == steps, "states", "differ in their number between tracks");
  const bool known = track.object_type >= 0 && track.object_type < static_cast<int>(OBJECT_TYPES.size());
  require(known, "object_type", "must index OBJECT_TYPES");
  bool is_near = true;
  bool has_headings = true;
  bool has_velocities = true;
  double largest_heading = 0.0;
  for (const State& state : track.states) {
    if (!state.valid) continue;
    const double farthest = std::max(std::abs(state.position.x), std::abs(state.position.y));
    is_near = is_near && farthest <= MAX_COORDINATE && is_finite(state.position);
    has_headings = has_headings && std::isfinite(state.heading);
    has_velocities = has_velocities && is_finite(state.velocity);
    largest_heading = std::max(largest_heading, std::abs(state.heading));
  }
  if (!is_near) {
    throw DataError("is not finite or beyond " + formatted("%g", MAX_COORDINATE) + " m", "position");
  }
  require(has_headings, "heading", "contains a non-finite value");
  require(has_velocities, "velocity", "contains a non-finite value");
  if (largest_heading > MAX_HEADING) {
    const std::string contains = "contains " + formatted("%.4g", largest_heading);
    throw DataError(contains + ": must be radians, not degrees", "heading");
  }
}

}  // namespace

std::int64_t Track::last_seen() const {
  for (auto step = static_cast<std::int64_t>(states.size()) - 1; step >= 0; --step) {
    if (states[static_cast<std::size_t>(step)].valid) return step;
  }
  return -1;
}

std::size_t Scene::num_observed() const { return tracks.empty() ? 0 : tracks[0].states.size(); }

Scene Scene::window(std::size_t observed) const {
  Scene result = *this;
  const std::size_t recorded = num_observed();
  if (recorded == observed) return result;
  for (Track& track : result.tracks) {
    std::vector<State> states(observed);
    const std::size_t kept = std::min(observed, recorded);
    std::copy(track.states.end() - static_cast<std::ptrdiff_t>(kept), track.states.end(),
              states.end() - static_cast<std::ptrdiff_t>(kept));
    track.states = std::move(states);
  }
  return result;
}

void Scene::validate() const {
  require(!tracks.empty(), "tracks", "must not be empty");
  require(focal < tracks.size(), "focal", "must be a row of the tracks");
  require(num_observed() > 0, "states", "must not be empty");
  require(std::isfinite(step_s) && step_s > 0, "step_s", "must be positive and finite");
  for (const Track& track : tracks) onboard::validate(track, num_observed());
  require(tracks[focal].last_seen() >= 0, "focal", "has no observed state");
}

}  // namespace trajpred::onboard
