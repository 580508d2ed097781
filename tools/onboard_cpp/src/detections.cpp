#include "trajpred_onboard/detections.hpp"

#include <cmath>
#include <limits>
#include <set>

#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/lane_map.hpp"
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

double heading_of(const Detections& detections, std::size_t row) {
  if (!detections.heading) return UNKNOWN;
  const double heading = (*detections.heading)[row];
  if (!std::isfinite(heading)) return UNKNOWN;
  const double wrapped = wrap_angle(heading);
  return wrapped == UNKNOWN_HEADING ? KNOWN_ZERO : wrapped;
}

Point velocity_of(const Detections& detections, std::size_t row) {
  const Point unknown{UNKNOWN, UNKNOWN};
  if (!detections.velocity) return unknown;
  const Point velocity = (*detections.velocity)[row];
  return norm(velocity) <= MAX_SPEED ? velocity : unknown;
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
    const double heading = heading_of(detections, row);
    const Point velocity = velocity_of(detections, row);
    result.states.push_back({name, detections.position[row], heading, velocity, types[row]});
  }
  warn_of_duplicates(named, warnings);
  return result;
}

}  // namespace trajpred::onboard
