// Recorded drives as text, with one update per line: trajpred/integrations/replay.py writes them and
// describes the format.
#pragma once

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>

#include "trajpred_onboard/detections.hpp"
#include "trajpred_onboard/forecaster.hpp"
#include "trajpred_onboard/lane_map.hpp"
#include "trajpred_onboard/stream.hpp"

namespace trajpred::onboard {

// A line of a drive.
struct DriveUpdate {
  // A new map, from this update on.
  std::optional<LaneMap> map;
  double timestamp_s;
  Detections detections;
  Targets targets;
  // The prediction of the program that wrote the file, without headings, speeds and scales.
  std::optional<Forecast> forecast;
};

// Reads a recorded drive, in bounded memory.
class DriveFile {
 public:
  // Throws DataError if the file cannot be read.
  explicit DriveFile(const std::string& path);

  // Returns the next update, or nothing at the end. Throws DataError that names the line at fault.
  std::optional<DriveUpdate> next();

 private:
  std::string path_;
  std::ifstream file_;
  std::size_t line_ = 0;
};

// Reads an update from a line. Throws DataError.
DriveUpdate parse_update(const std::string& line);

// Returns a forecast as a line, with positions to a millimetre, and the reasons for missing futures.
std::string forecast_line(const OnboardForecast& forecast);

}  // namespace trajpred::onboard
