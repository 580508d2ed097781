#include "trajpred_onboard/detections.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/lane_map.hpp"
#include "trajpred_onboard/ragged.hpp"
#include "trajpred_onboard/scenario.hpp"

namespace trajpred::onboard {

namespace {

constexpr double UNKNOWN = std::numeric_limits<double>::quiet_NaN();

// Returns a shape in Python's notation.
std::string shape_text(std::size_t count, bool is_planar) {
  const std::string size = std::to_string(count);
  return is_planar ? "(" + size + ", 2)" : "(" + size + ",)";
}

void require_size(std::size_t size, std::size_t count, bool is_planar, const std::string& field) {
  const std::string shape = shape_text(size, is_planar);
  const std::string expected = shape_text(count, is_planar);
  require(size == count, field, "has shape " + shape + " where " + expected + " is expected");
}

int index_of(const std::string& name) {
  for (std::size_t i = 0; i < OBJECT_TYPES.size(); ++i) {
    if (name == OBJECT_TYPES[i]) return static_cast<int>(i);
  }
  return -1;
}

// Returns indices into OBJECT_TYPES; other names become `unknown`, with a warning.
std::vector<int> object_types(const Detections& detections, Warnings& warnings) {
  const std::size_t count = detections.track_id.size();
  std::vector<int> types(count, 0);
  if (!detections.object_type) return types;
  const std::vector<std::string>& names = *detections.object_type;
  const std::string sizes = std::to_string(names.size()) + " entries for " + std::to_string(count);
  require(names.size() == count, "object_type", "has " + sizes + " detections");
  std::set<std::string> others;
  for (std::size_t i = 0; i < count; ++i) {
    const int type = index_of(names[i]);
    types[i] = type < 0 ? UNKNOWN_TYPE : type;
    if (type < 0) others.insert(names[i]);
  }
  if (others.empty()) return types;
  std::vector<std::string> quotes;
  for (const std::string& name : others) quotes.push_back(quoted(name));
  warnings.push_back("object types treated as unknown: " + shortened(joined_names(quotes)));
  return types;
}

// Throws DataError unless all columns have one entry for each id.
void require_sizes(const Detections& detections) {
  const std::size_t count = detections.track_id.size();
  const std::string excess = grouped(count) + " entries, more than " + grouped(MAX_TRACKS);
  require(count <= MAX_TRACKS, "track_id", "has " + excess);
  require_size(detections.position.size(), count, true, "position");
  if (detections.heading) require_size(detections.heading->size(), count, false, "heading");
  if (detections.velocity) require_size(detections.velocity->size(), count, true, "velocity");
}

bool is_near(Point position) {
  return std::abs(position.x) <= MAX_COORDINATE && std::abs(position.y) <= MAX_COORDINATE;
}

// Returns wrapped headings, NaN where unknown; if one can only be in degrees, all are unknown.
std::vector<double> headings(const Detections& detections, Warnings& warnings) {
  std::vector<double> result(detections.track_id.size(), UNKNOWN);
  if (!detections.heading) return result;
  const std::vector<double>& given = *detections.heading;
  const auto in_degrees = [](double x) { return std::isfinite(x) && std::abs(x) > MAX_HEADING; };
  if (std::any_of(given.begin(), given.end(), in_degrees)) {
    warnings.push_back("headings omitted, they follow from positions: must be radians, not degrees");
    return result;
  }
  for (std::size_t row = 0; row < given.size(); ++row) {
    if (std::isfinite(given[row])) result[row] = given_heading(wrap_angle(given[row]));
  }
  return result;
}

// Returns velocities, NaN where unknown or faster than MAX_SPEED.
std::vector<Point> velocities(const Detections& detections, Warnings& warnings) {
  std::vector<Point> result(detections.track_id.size(), Point{UNKNOWN, UNKNOWN});
  if (!detections.velocity) return result;
  bool too_fast = false;
  for (std::size_t row = 0; row < result.size(); ++row) {
    const Point velocity = (*detections.velocity)[row];
    const bool usable = norm(velocity) <= MAX_SPEED;
    if (usable) result[row] = velocity;
    else if (is_finite(velocity)) too_fast = true;
  }
  if (too_fast) {
    const std::string limit = "above " + formatted("%g", MAX_SPEED) + " m/s";
    const std::string unit = "must be metres per second";
    warnings.push_back("velocities " + limit + " omitted, they follow from positions: " + unit);
  }
  return result;
}

void warn_of_duplicates(const std::vector<std::string>& names, Warnings& warnings) {
  std::set<std::string> unique;
  std::set<std::string> repeated;
  for (const std::string& name : names) {
    const bool is_new = unique.insert(name).second;
    if (!is_new) repeated.insert(name);
  }
  if (repeated.empty()) return;
  const std::vector<std::string> listed(repeated.begin(), repeated.end());
  const std::string duplicates = shortened(joined_names(listed));
  warnings.push_back("duplicate ids, the first usable detection counts: " + duplicates);
}

}  // namespace

std::optional<Validated> validated(const Detections& detections, Warnings& warnings) {
  std::vector<int> types;
  try {
    require_sizes(detections);
    types = object_types(detections, warnings);
  } catch (const DataError& error) {
    warnings.push_back(std::string("detections omitted: ") + error.what());
    return std::nullopt;
  }
  const std::string limit = formatted("%g", MAX_COORDINATE) + " m";
  const std::string far = "its position is not finite or beyond " + limit;
  const std::string characters = std::to_string(MAX_NAME) + " printable characters";
  const std::string nameless = "its id is not 1 to " + characters;
  Validated result;
  std::vector<std::string> named;
  std::set<std::string> used;
  Rows kept;
  for (std::size_t row = 0; row < detections.track_id.size(); ++row) {
    const std::string& name = detections.track_id[row];
    if (!is_name(name)) {
      result.rejected[name] = nameless;
      continue;
    }
    named.push_back(name);
    if (!is_near(detections.position[row])) {
      result.rejected[name] = far;
      continue;
    }
    const bool is_first = used.insert(name).second;
    if (!is_first) continue;
    kept.push_back(row);
  }
  warn_of_duplicates(named, warnings);
  const std::vector<double> heading = headings(detections, warnings);
  const std::vector<Point> velocity = velocities(detections, warnings);
  for (const std::size_t row : kept) {
    const std::string& name = detections.track_id[row];
    result.states.push_back({name, detections.position[row], heading[row], velocity[row], types[row]});
  }
  return result;
}

}  // namespace trajpred::onboard
