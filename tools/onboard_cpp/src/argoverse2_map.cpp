// Argoverse 2's vector maps as lane maps: trajpred/sources/argoverse2.py.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "files.hpp"
#include "json_text.hpp"
#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/lane_map.hpp"
#include "trajpred_onboard/ragged.hpp"

namespace trajpred::onboard {

namespace {

// Keeps the order of the file, which is that of the rows.
using Json = nlohmann::ordered_json;

// Largest distance (metres) between the points of a computed centreline.
constexpr double POINT_M = 2.0;
// Longest boundary (metres): longer ones are errors, whose centreline would take up all memory.
constexpr double LONGEST_M = 1e5;
constexpr std::uintmax_t MAX_MAP_BYTES = std::uintmax_t{1} << 30;

// A record of one group of a map archive, read key by key.
class Record {
 public:
  Record(const Json& values, const char* group) : values_(values), group_(group) {}

  const Json& at(const char* key) const {
    const bool exists = values_.is_object() && values_.contains(key);
    require(exists, field(key), "is missing in at least one record");
    return values_.at(key);
  }

  template <std::size_t N>
  int code(const char* key, const std::array<const char*, N>& names) const {
    const Json& value = at(key);
    for (std::size_t i = 0; i < N; ++i) {
      if (value.is_string() && value.get_ref<const std::string&>() == names[i]) return static_cast<int>(i);
    }
    const std::string listed = joined_names({names.begin(), names.end()});
    const std::string unknown = shortened(value.dump(), MAX_QUOTED);
    throw DataError("unknown value " + unknown + "; known: " + listed, field(key));
  }

  bool flag(const char* key) const {
    const Json& value = at(key);
    require(value.is_boolean(), field(key), "must be true or false");
    return value.get<bool>();
  }

  std::int64_t integer(const char* key) const { return integer_of(at(key), key); }

  std::int64_t integer_or(const char* key, std::int64_t null) const {
    const Json& value = at(key);
    return value.is_null() ? null : integer_of(value, key);
  }

  std::vector<std::int64_t> ids(const char* key) const {
    const Json& values = at(key);
    require(values.is_array(), field(key), "must be lists of ids");
    std::vector<std::int64_t> result;
    for (const Json& value : values) result.push_back(integer_of(value, key));
    return result;
  }

  // Converts a list of {"x", "y", "z"} to a polyline; heights are checked and left out.
  Polyline polyline(const char* key) const {
    const Json& points = at(key);
    const std::string message = "must be lists of points {\"x\", \"y\", \"z\"} of numbers";
    require(points.is_array(), field(key), message);
    Polyline line;
    for (const Json& point : points) {
      const bool is_point = is_number(point, "x") && is_number(point, "y") && is_number(point, "z");
      require(is_point, field(key), message);
      line.push_back({point.at("x").get<double>(), point.at("y").get<double>()});
    }
    return line;
  }

 private:
  std::string field(const char* key) const { return std::string(group_) + "." + key; }

  static bool is_number(const Json& point, const char* name) {
    return point.is_object() && point.contains(name) && point.at(name).is_number();
  }

  std::int64_t integer_of(const Json& value, const char* key) const {
    const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || is_signed(value));
    require(fits, field(key), "must be 64-bit integers");
    return value.get<std::int64_t>();
  }

  static bool is_signed(const Json& value) { return value.get<std::uint64_t>() <= INT64_MAX; }

  const Json& values_;
  const char* group_;
};

// The records of a map archive.
struct Archive {
  // The file without the records.
  Json rest;
  // By group, in the order of the file.
  std::map<std::string, std::vector<Json>> records;
};

// Takes the records out as they end: an ordered object compares every key with all earlier ones.
Archive archive_from(const std::string& text) {
  Archive archive;
  std::string group;
  const auto is_kept = [&archive, &group](int depth, Json::parse_event_t event, Json& value) {
    require_depth(depth);
    if (event == Json::parse_event_t::key && depth == 1) group = value.get<std::string>();
    const bool is_record = event == Json::parse_event_t::object_end && depth == 2;
    if (is_record) archive.records[group].push_back(std::move(value));
    return !is_record;
  };
  archive.rest = Json::parse(text, is_kept);
  return archive;
}

const std::vector<Json>& group_of(Archive& archive, const char* group) {
  require(archive.rest.is_object(), group, "the file must contain an object");
  require(archive.rest.contains(group), group, "is missing");
  const Json& rest = archive.rest.at(group);
  require(rest.is_object() && rest.empty(), group, "must be an object of id -> record");
  return archive.records[group];
}

// Computes the centreline halfway between two boundaries, with a point every 2 m or closer.
Polyline midline(const Polyline& left, const Polyline& right) {
  const bool both = left.size() > 1 && right.size() > 1;
  require(both, "lane_segments", "have neither centrelines nor two points of both boundaries");
  const double left_m = arc_length(left).back();
  const double right_m = arc_length(right).back();
  const bool plausible = left_m <= LONGEST_M && right_m <= LONGEST_M;
  require(plausible, "lane_segments", "contain a lane longer than " + formatted("%g", LONGEST_M) + " m");
  const double length = (left_m + right_m) / 2;
  const auto points = static_cast<std::size_t>(std::ceil(length / POINT_M)) + 1;
  require(points > 1, "lane_segments", "contain a lane without length");
  const Polyline left_points = resample(left, points);
  const Polyline right_points = resample(right, points);
  Polyline line;
  for (std::size_t i = 0; i < points; ++i) line.push_back(0.5 * (left_points[i] + right_points[i]));
  return line;
}

LaneSegment lane_from(const Record& record, bool has_centerline) {
  LaneSegment lane;
  lane.lane_id = record.integer("id");
  lane.lane_type = record.code("lane_type", LANE_TYPES);
  lane.is_intersection = record.flag("is_intersection");
  lane.left_boundary = record.polyline("left_lane_boundary");
  lane.right_boundary = record.polyline("right_lane_boundary");
  lane.centerline =
      has_centerline ? record.polyline("centerline") : midline(lane.left_boundary, lane.right_boundary);
  lane.left_mark = record.code("left_lane_mark_type", MARK_TYPES);
  lane.right_mark = record.code("right_lane_mark_type", MARK_TYPES);
  lane.left_neighbor = record.integer_or("left_neighbor_id", NO_LANE);
  lane.right_neighbor = record.integer_or("right_neighbor_id", NO_LANE);
  lane.predecessors = record.ids("predecessors");
  lane.successors = record.ids("successors");
  return lane;
}

// Says whether any lane has a centreline: the maps of sensor logs have none.
bool has_centerlines(const std::vector<Json>& lanes) {
  const auto has_one = [](const Json& lane) { return lane.contains("centerline"); };
  return std::any_of(lanes.begin(), lanes.end(), has_one);
}

LaneMap map_from(Archive archive) {
  LaneMap map;
  const std::vector<Json>& lanes = group_of(archive, "lane_segments");
  const bool has_centerline = has_centerlines(lanes);
  for (const Json& values : lanes) {
    map.lanes.push_back(lane_from(Record(values, "lane_segments"), has_centerline));
  }
  for (const Json& values : group_of(archive, "pedestrian_crossings")) {
    const Record record(values, "pedestrian_crossings");
    map.crossings.push_back({record.integer("id"), record.polyline("edge1"), record.polyline("edge2")});
  }
  map.validate();
  return map;
}

}  // namespace

LaneMap LaneMap::parse(const std::string& json) {
  try {
    return map_from(archive_from(json));
  } catch (const Json::exception& error) {
    throw DataError(std::string("is not a map in JSON (") + error.what() + ")");
  }
}

LaneMap LaneMap::load(const std::string& path) {
  try {
    return parse(read_file(path, MAX_MAP_BYTES));
  } catch (const DataError& error) {
    throw error.located(path);
  }
}

}  // namespace trajpred::onboard
