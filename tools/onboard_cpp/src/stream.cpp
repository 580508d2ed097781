#include "trajpred_onboard/stream.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "trajpred_onboard/clock.hpp"
#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

// Describes a thrown object that is not a std::exception.
constexpr const char* NO_REASON = "unknown exception";

// Replaces entries of `reasons` by those of `others`.
void update_reasons(Reasons& reasons, const Reasons& others) {
  for (const auto& [name, reason] : others) reasons[name] = reason;
}

// Keeps the reasons of the targets.
Reasons of_targets(const Reasons& reasons, const std::vector<std::string>& targets) {
  Reasons result;
  for (const std::string& name : targets) {
    const auto reason = reasons.find(name);
    result[name] = reason == reasons.end() ? "not detected recently" : reason->second;
  }
  return result;
}

// Removes the reasons of tracks that have a result, and returns them.
Reasons extract(Reasons& reasons, const std::vector<std::string>& names) {
  Reasons extracted;
  for (const std::string& name : names) {
    const auto reason = reasons.find(name);
    if (reason == reasons.end()) continue;
    extracted.insert(*reason);
    reasons.erase(reason);
  }
  return extracted;
}

// Returns the ids of the agents without padding.
std::vector<std::string> encoded_ids(const Tokens& tokens) {
  std::vector<std::string> names;
  for (std::size_t row = 0; row < tokens.track_id.size(); ++row) {
    if (tokens.agent_valid[row]) names.push_back(tokens.track_id[row]);
  }
  return names;
}

template <class Runtime>
Runtime& checked(const std::shared_ptr<Runtime>& runtime) {
  require(runtime != nullptr, "runtime", "must not be null");
  return *runtime;
}

// Formats a non-finite time like Python.
std::string time_text(double time_s) {
  if (std::isnan(time_s)) return "nan";
  return time_s > 0 ? "inf" : "-inf";
}

}  // namespace

SharedMap::SharedMap(LaneMap map) : pointer(std::make_shared<const LaneMap>(std::move(map))) {}

SharedMap::SharedMap(std::shared_ptr<const LaneMap> map) : pointer(std::move(map)) {}

TrackStream::TrackStream(Encoder& runtime, SharedMap map, std::string ego_id)
    : runtime_(runtime),
      ego_id_(std::move(ego_id)),
      history_(runtime.bundle().history(), runtime.bundle().step_s(), MAX_TRACKS) {
  set_map(std::move(map));
}

void TrackStream::set_map(SharedMap map) {
  try {
    runtime_.lanes().set_map(map.pointer);
    map_ = std::move(map.pointer);
  } catch (const DataError& error) {
    pending_warnings_.push_back(std::string("map rejected: ") + error.what());
  }
}

Reasons TrackStream::add(double timestamp_s, const Detections& detections, Warnings& warnings) {
  Reasons rejected = record(timestamp_s, detections, warnings);
  tracks_ = recent_tracks();
  return rejected;
}

Reasons TrackStream::record(double timestamp_s, const Detections& detections, Warnings& warnings) {
  warnings = std::move(pending_warnings_);
  pending_warnings_.clear();
  Reasons omitted;
  for (const std::string& name : detections.track_id) omitted[name] = "its update was omitted";
  if (!std::isfinite(timestamp_s)) {
    const std::string message = "is not finite, is " + time_text(timestamp_s);
    const DataError error(message, "timestamp_s");
    warnings.push_back(std::string("update omitted: ") + error.what());
    return omitted;
  }
  const bool is_repeated = timestamp_s == latest_s_;
  if (!advance(timestamp_s, warnings)) return omitted;
  const std::optional<Validated> accepted = validated(detections, warnings);
  if (!accepted) return omitted;
  if (is_repeated && is_detected_now(accepted->states)) {
    warnings.push_back("time did not advance: these detections replace those of the last update");
  }
  const bool is_known = !history_.velocity_problem().empty();
  for (const std::string& name : history_.add(timestamp_s, accepted->states, MAX_SPEED, MAX_JUMP_M)) {
    warnings.push_back("track " + name + " jumped: its earlier history was dropped");
  }
  if (!is_known && !history_.velocity_problem().empty()) warnings.push_back(history_.velocity_problem());
  return accepted->rejected;
}

bool TrackStream::is_detected_now(const std::vector<Detection>& states) const {
  std::set<std::string> current;
  for (std::size_t row = 0; row < history_.size(); ++row) {
    const double ago_s = latest_s_ - history_.last_seen_s(row);
    if (ago_s < SAME_UPDATE_S) current.insert(history_.track_id(row));
  }
  for (const Detection& state : states) {
    if (current.count(state.track_id) > 0) return true;
  }
  return false;
}

bool TrackStream::advance(double timestamp_s, Warnings& warnings) {
  const double memory_s = history_.memory_s();
  const double passed_s = timestamp_s - latest_s_;
  const bool is_late = -memory_s < passed_s && passed_s < 0;
  if (is_late && !clock_changed(timestamp_s)) {
    warnings.push_back("time went back by " + formatted("%.3f", -passed_s) + " s: update omitted");
    return false;
  }
  late_since_s_ = std::numeric_limits<double>::quiet_NaN();
  if (0 <= passed_s && passed_s < memory_s) {
    history_.advance(timestamp_s);
  } else {
    if (!std::isnan(passed_s)) {
      const std::string change = passed_s < 0 ? "time went back by " : "no update for ";
      warnings.push_back(change + formatted("%.1f", std::abs(passed_s)) + " s: histories were reset");
    }
    history_.clear();
  }
  latest_s_ = timestamp_s;
  return true;
}

bool TrackStream::clock_changed(double timestamp_s) {
  const bool is_first = !(timestamp_s >= late_since_s_);
  if (is_first) late_since_s_ = timestamp_s;
  return timestamp_s - late_since_s_ >= NEW_CLOCK_S;
}

Tracks TrackStream::recent_tracks() const {
  const double step_s = history_.step_s();
  const double memory_s = runtime_.bundle().features().memory_s;
  // A state counts for less than a step after its time.
  Tracks tracks = history_.resampled(latest_s_, memory_s + step_s);
  const auto is_old = [step_s, memory_s](const Track& track) {
    const auto ago = static_cast<std::int64_t>(track.states.size()) - 1 - track.last_seen();
    return track.last_seen() < 0 || static_cast<double>(ago) * step_s > memory_s + step_s / 10;
  };
  tracks.erase(std::remove_if(tracks.begin(), tracks.end(), is_old), tracks.end());
  return tracks;
}

std::optional<Scene> TrackStream::scene() const {
  if (tracks_.empty()) return std::nullopt;
  Scene scene;
  for (std::size_t row = 1; row < tracks_.size(); ++row) {
    const bool later = tracks_[row].last_seen() > tracks_[scene.focal].last_seen();
    if (later) scene.focal = row;
  }
  for (std::size_t row = 0; row < tracks_.size(); ++row) {
    if (tracks_[row].track_id == ego_id_) scene.focal = row;
  }
  scene.scenario_id = formatted("%.3f", latest_s_);
  scene.step_s = history_.step_s();
  scene.tracks = tracks_;
  scene.map = map_;
  scene.routes = runtime_.lanes().routes();  // of another map if another stream uses the runtime, too
  return scene;
}

Reasons TrackStream::reasons() const {
  Reasons reasons;
  for (std::size_t row = 0; row < history_.size(); ++row) {
    const double ago_s = latest_s_ - history_.last_seen_s(row);
    reasons[history_.track_id(row)] = "not seen for " + formatted("%.1f", ago_s) + " s";
  }
  const std::string limit = std::to_string(runtime_.bundle().features().max_agents);
  for (const Track& track : tracks_) {
    reasons[track.track_id] = "not among the nearest " + limit + " agents, the bundle's limit";
  }
  return reasons;
}

void TrackStream::note_failure(const std::string& what, const std::string& error, Warnings& warnings,
                               Reasons& why) const {
  warnings.push_back(what + " failed: " + on_one_line(error));
  for (const Track& track : tracks_) why[track.track_id] = "the " + what + " failed";
}

StreamingForecaster::StreamingForecaster(std::shared_ptr<Forecaster> runtime, SharedMap map,
                                         std::string ego_id, Rule fallback)
    : TrackStream(checked(runtime), std::move(map), std::move(ego_id)),
      runtime_(std::move(runtime)),
      fallback_(std::move(fallback)) {}

OnboardForecast StreamingForecaster::update(double timestamp_s, const Detections& detections,
                                            const Targets& targets) {
  Warnings warnings;
  const Reasons rejected = add(timestamp_s, detections, warnings);
  Reasons missing = reasons();
  Forecast forecast = runtime_->empty_forecast();
  StageTimes stage_ms;
  if (const std::optional<Scene> current = scene()) {
    try {
      forecast = runtime_->forecast(*current, targets);
    } catch (const std::exception& error) {  // a runtime for ONNX has its own classes
      note_failure("forecast", error.what(), warnings, missing);
    } catch (...) {
      note_failure("forecast", NO_REASON, warnings, missing);
    }
    stage_ms = runtime_->stage_ms();
  }
  update_reasons(missing, rejected);
  if (targets) missing = of_targets(missing, *targets);
  extract(missing, forecast.track_id);
  const std::size_t predicted = forecast.size();
  if (fallback_ && !missing.empty()) forecast = complete(std::move(forecast), missing, warnings);
  const auto first = forecast.track_id.begin() + static_cast<std::ptrdiff_t>(predicted);
  const std::vector<std::string> completed(first, forecast.track_id.end());
  OnboardForecast result;
  static_cast<Forecast&>(result) = std::move(forecast);
  result.timestamp_s = latest_s();
  result.fallback = extract(missing, completed);
  result.not_predicted = std::move(missing);
  result.warnings = std::move(warnings);
  result.stage_ms = std::move(stage_ms);
  return result;
}

Forecast StreamingForecaster::complete(Forecast forecast, const Reasons& missing, Warnings& warnings) const {
  Rows rows;
  for (std::size_t row = 0; row < tracks().size(); ++row) {
    if (missing.count(tracks()[row].track_id) > 0) rows.push_back(row);
  }
  const std::optional<Scene> current = scene();
  if (!current || rows.empty()) return forecast;
  try {
    const Forecast others = rule_forecast(fallback_, *current, rows, forecast.modes, forecast.horizon);
    return joined(forecast, others);
  } catch (const std::exception& error) {  // any function may be given
    warnings.push_back("fallback failed: " + on_one_line(error.what()));
  } catch (...) {
    warnings.push_back(std::string("fallback failed: ") + NO_REASON);
  }
  return forecast;
}

StreamingEncoder::StreamingEncoder(std::shared_ptr<Encoder> runtime, SharedMap map, std::string ego_id)
    : TrackStream(checked(runtime), std::move(map), std::move(ego_id)), runtime_(std::move(runtime)) {}

StreamedTokens StreamingEncoder::update(double timestamp_s, const Detections& detections) {
  Warnings warnings;
  const Reasons rejected = add(timestamp_s, detections, warnings);
  Reasons missing = reasons();
  StreamedTokens result;
  static_cast<Tokens&>(result) = runtime_->empty_tokens();
  if (const std::optional<Scene> current = scene()) {
    try {
      static_cast<Tokens&>(result) = runtime_->encode(*current);
    } catch (const std::exception& error) {
      note_failure("encoder", error.what(), warnings, missing);
    } catch (...) {
      note_failure("encoder", NO_REASON, warnings, missing);
    }
    result.stage_ms = runtime_->stage_ms();
  }
  update_reasons(missing, rejected);
  extract(missing, encoded_ids(result));
  result.timestamp_s = latest_s();
  result.not_encoded = std::move(missing);
  result.warnings = std::move(warnings);
  return result;
}

}  // namespace trajpred::onboard
