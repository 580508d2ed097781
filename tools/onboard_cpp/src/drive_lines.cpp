#include "trajpred_onboard/drive_lines.hpp"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "json_text.hpp"
#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

// Keeps the order of the lanes of a map.
using Json = nlohmann::ordered_json;

// A missing number, or one that JSON cannot hold, is null.
double number(const Json& value) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  return value.get<double>();
}

Point point(const Json& value) {
  const bool planar = value.is_array() && value.size() == 2;
  require(planar, "position", "must be pairs of numbers");
  return {number(value[0]), number(value[1])};
}

template <class Value, class Read>
std::vector<Value> list_of(const Json& values, const std::string& field, const Read& read) {
  require(values.is_array(), field, "must be a list");
  std::vector<Value> result;
  for (const Json& value : values) result.push_back(read(value));
  return result;
}

std::string text(const Json& value) { return value.get<std::string>(); }

// Returns whether `line` has `field`, and not null.
bool has(const Json& line, const char* field) { return line.contains(field) && !line.at(field).is_null(); }

Detections detections_of(const Json& line) {
  Detections detections;
  detections.track_id = list_of<std::string>(line.at("track_id"), "track_id", text);
  detections.position = list_of<Point>(line.at("position"), "position", point);
  if (has(line, "heading")) detections.heading = list_of<double>(line.at("heading"), "heading", number);
  if (has(line, "velocity")) detections.velocity = list_of<Point>(line.at("velocity"), "velocity", point);
  if (has(line, "object_type")) {
    detections.object_type = list_of<std::string>(line.at("object_type"), "object_type", text);
  }
  return detections;
}

Forecast forecast_of(const Json& values) {
  Forecast forecast;
  forecast.track_id = list_of<std::string>(values.at("track_id"), "track_id", text);
  for (const Json& track : values.at("trajectory")) {
    forecast.modes = track.size();
    for (const Json& mode : track) {
      forecast.horizon = mode.size();
      for (const Json& position : mode) forecast.trajectory.push_back(point(position));
    }
  }
  for (const Json& track : values.at("probability")) {
    for (const Json& share : track) forecast.probability.push_back(number(share));
  }
  const std::size_t rows = forecast.size() * forecast.modes;
  require(forecast.trajectory.size() == rows * forecast.horizon, "forecast", "has rows of different lengths");
  require(forecast.probability.size() == rows, "forecast", "has not a probability for each mode");
  return forecast;
}

double to_millimetres(double metres) { return std::round(metres * 1e3) / 1e3; }

Json trajectory_of(const Forecast& forecast, std::size_t track) {
  Json modes = Json::array();
  for (std::size_t mode = 0; mode < forecast.modes; ++mode) {
    Json path = Json::array();
    for (std::size_t step = 0; step < forecast.horizon; ++step) {
      const Point position = forecast.trajectory[forecast.index(track, mode, step)];
      path.push_back({to_millimetres(position.x), to_millimetres(position.y)});
    }
    modes.push_back(std::move(path));
  }
  return modes;
}

Json probability_of(const Forecast& forecast, std::size_t track) {
  Json shares = Json::array();
  for (std::size_t mode = 0; mode < forecast.modes; ++mode) {
    shares.push_back(forecast.probability[track * forecast.modes + mode]);
  }
  return shares;
}

}  // namespace

DriveUpdate parse_update(const std::string& line) {
  try {
    const Json values = parse_json<Json>(line);
    require(values.is_object(), "", "must be an object");
    DriveUpdate update;
    if (has(values, "map")) update.map = LaneMap::parse(values.at("map").dump());
    update.timestamp_s = number(values.at("time_s"));
    update.detections = detections_of(values);
    if (has(values, "targets")) update.targets = list_of<std::string>(values.at("targets"), "targets", text);
    if (has(values, "forecast")) update.forecast = forecast_of(values.at("forecast"));
    return update;
  } catch (const Json::exception& error) {
    throw DataError(std::string("is not an update (") + error.what() + ")");
  }
}

DriveFile::DriveFile(const std::string& path) : path_(path), file_(path) {
  std::error_code error;
  const bool readable = std::filesystem::is_regular_file(path, error) && file_.good();
  if (!readable) throw DataError("no such file, or not readable", "", path);
}

std::optional<DriveUpdate> DriveFile::next() {
  std::string line;
  while (std::getline(file_, line)) {
    ++line_;
    const bool is_empty = line.find_first_not_of(" \t\r") == std::string::npos;
    if (is_empty) continue;
    try {
      return parse_update(line);
    } catch (const DataError& error) {
      throw error.located(path_ + ", line " + std::to_string(line_));
    }
  }
  return std::nullopt;
}

std::string forecast_line(const OnboardForecast& forecast) {
  Json trajectory = Json::array();
  Json probability = Json::array();
  for (std::size_t track = 0; track < forecast.size(); ++track) {
    trajectory.push_back(trajectory_of(forecast, track));
    probability.push_back(probability_of(forecast, track));
  }
  Json line;
  line["time_s"] = forecast.timestamp_s;
  line["track_id"] = forecast.track_id;
  line["trajectory"] = std::move(trajectory);
  line["probability"] = std::move(probability);
  line["not_predicted"] = forecast.not_predicted;
  line["fallback"] = forecast.fallback;
  line["warnings"] = forecast.warnings;
  // Ids may hold bytes that are not UTF-8.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trajpred::onboard
