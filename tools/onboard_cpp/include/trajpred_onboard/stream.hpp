// Encodes or forecasts from a tracker's detections, update by update: trajpred/onboard/stream.py.
//
// Every update returns a result, with a reason for each road user without one.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trajpred_onboard/baselines.hpp"
#include "trajpred_onboard/detections.hpp"
#include "trajpred_onboard/encoder.hpp"
#include "trajpred_onboard/forecaster.hpp"
#include "trajpred_onboard/history.hpp"

namespace trajpred::onboard {

// Distance (m) that a track may jump regardless of time: detections are noisy.
inline constexpr double MAX_JUMP_M = 5.0;

// Seconds of uninterruptedly late updates after which the tracker's clock is assumed to have changed.
inline constexpr double NEW_CLOCK_S = 0.5;

// A forecast with its diagnostics.
struct OnboardForecast : Forecast {
  // Time of the latest accepted update.
  double timestamp_s = std::numeric_limits<double>::quiet_NaN();
  // Reason by id, for each detected or remembered road user (or target) without futures.
  Reasons not_predicted;
  // By id, why the bundle did not predict the road users whose futures are the fallback's.
  Reasons fallback;
  // Problems of this update.
  Warnings warnings;
  StageTimes stage_ms;
};

// The tokens of an update with its diagnostics.
struct StreamedTokens : Tokens {
  double timestamp_s = std::numeric_limits<double>::quiet_NaN();
  // Reason by id, for each detected or remembered road user without a token.
  Reasons not_encoded;
  Warnings warnings;
  StageTimes stage_ms;
};

// A map, possibly shared by several streams: what one has processed serves all streams of its runtime.
struct SharedMap {
  SharedMap() : SharedMap(LaneMap{}) {}
  SharedMap(LaneMap map);
  SharedMap(std::shared_ptr<const LaneMap> map);

  std::shared_ptr<const LaneMap> pointer;
};

// Keeps the history of every track; base class of the streaming runtimes.
//
// Updates may come at any rate. States keep their true times, and every update resamples them to the model's
// steps up to the update, like scenarios.
class TrackStream {
 public:
  // Replaces the map, for example by a new tile. If it is invalid, the current map stays, and the next update
  // has a warning.
  void set_map(SharedMap map);

  const LaneMap& map() const { return *map_; }

  // Returns the tracks detected recently enough to be agents, at the model's steps up to the latest update.
  const Tracks& tracks() const { return tracks_; }

 protected:
  TrackStream(Encoder& runtime, SharedMap map, std::string ego_id);

  // Adds the detections to the histories; returns the reasons for rejections, by id.
  Reasons add(double timestamp_s, const Detections& detections, Warnings& warnings);

  // Returns the recent tracks as a scene around the ego, or nothing without any.
  std::optional<Scene> scene() const;

  // Returns the reason why each track would have no result.
  Reasons reasons() const;

  // Returns the reasons of a runtime that failed.
  void note_failure(const std::string& what, const std::string& error, Warnings& warnings,
                    Reasons& why) const;

  double latest_s() const { return latest_s_; }

 private:
  // Adds the detections, without resampling.
  Reasons record(double timestamp_s, const Detections& detections, Warnings& warnings);

  // Resamples the tracks that were detected recently enough to be agents.
  Tracks recent_tracks() const;

  // Returns whether any of these tracks was detected at the latest update's time.
  bool is_detected_now(const std::vector<Detection>& states) const;

  // Advances the histories to a finite time; returns false if the update must be ignored.
  bool advance(double timestamp_s, Warnings& warnings);

  // Returns whether updates have been late for NEW_CLOCK_S, as after a step of the clock.
  bool clock_changed(double timestamp_s);

  Encoder& runtime_;
  std::string ego_id_;
  HistoryTable history_;
  Tracks tracks_;
  Warnings pending_warnings_;
  double latest_s_ = std::numeric_limits<double>::quiet_NaN();
  // Time of the first of the latest updates if these were late.
  double late_since_s_ = std::numeric_limits<double>::quiet_NaN();
  std::shared_ptr<const LaneMap> map_ = std::make_shared<const LaneMap>();
};

// Forecasts at each update of a tracker.
//
// `ego_id`: the track at the centre of the scene, which matters if there are more agents or lanes than the
// model takes; without such a track, the most recently detected one stands in. `fallback`: predicts recently
// detected tracks that the bundle does not predict; by default they have no futures.
class StreamingForecaster : public TrackStream {
 public:
  explicit StreamingForecaster(std::shared_ptr<Forecaster> runtime, SharedMap map = {},
                               std::string ego_id = EGO_ID, Rule fallback = nullptr);

  // Adds the detections at `timestamp_s`, on any monotonic clock, and forecasts from there.
  //
  // Invalid input never throws: it is omitted, with a warning. Only running out of memory throws.
  OnboardForecast update(double timestamp_s, const Detections& detections, const Targets& targets = {});

  Forecaster& runtime() { return *runtime_; }

 private:
  // Adds the fallback's futures for missing tracks that were detected recently.
  Forecast complete(Forecast forecast, const Reasons& missing, Warnings& warnings) const;

  std::shared_ptr<Forecaster> runtime_;
  Rule fallback_;
};

// Encodes at each update of a tracker; arguments as for StreamingForecaster.
class StreamingEncoder : public TrackStream {
 public:
  explicit StreamingEncoder(std::shared_ptr<Encoder> runtime, SharedMap map = {},
                            std::string ego_id = EGO_ID);

  // Adds the detections at `timestamp_s` and encodes the scene. Invalid input never throws.
  StreamedTokens update(double timestamp_s, const Detections& detections);

  Encoder& runtime() { return *runtime_; }

 private:
  std::shared_ptr<Encoder> runtime_;
};

}  // namespace trajpred::onboard
