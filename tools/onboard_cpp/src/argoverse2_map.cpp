// Argoverse 2's vector maps as lane maps: trajpred/sources/argoverse2.py.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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
// Longest boundary (metres): longer ones are errors, whose centreline would use up the memory.
constexpr double LONGEST_M = 1e5;
// Number of parts of each kind that a summary names.
constexpr std::size_t MAX_NAMED = 10;
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

// The broken parts left out of a map: trajpred/sources/reading.py.
class MapProblems {
 public:
  // Kinds come one after the other.
  void add(const std::string& kind, const std::string& name, const std::string& reason) {
    const bool is_new = left_out_.empty() || left_out_.back().kind != kind;
    if (is_new) left_out_.push_back({kind, {}});
    left_out_.back().parts.push_back({shortened(name, MAX_QUOTED), reason});
  }

  // Describes each kind: how many were left out, the first names, and the first reason. Empty without any.
  std::string summary() const {
    std::string text;
    for (const Kind& kind : left_out_) {
      if (!text.empty()) text += "; ";
      text += summary_of(kind.kind, kind.parts);
    }
    return text;
  }

 private:
  struct Part {
    std::string name;
    std::string reason;
  };

  struct Kind {
    std::string kind;
    std::vector<Part> parts;
  };

  static std::string summary_of(const std::string& kind, const std::vector<Part>& parts) {
    const Part& first = parts[0];
    if (parts.size() == 1) return "1 " + kind + " left out: " + first.name + " (" + first.reason + ")";
    std::vector<std::string> names;
    for (const Part& part : parts) {
      if (names.size() < MAX_NAMED) names.push_back(part.name);
    }
    if (parts.size() > MAX_NAMED) names.push_back("…");
    const std::string count = std::to_string(parts.size());
    return count + " " + kind + "s left out: " + joined_names(names) + " (" + first.name + ": " +
           first.reason + ")";
  }

  std::vector<Kind> left_out_;
};

// The records of a map archive.
struct Archive {
  // The file without the records.
  Json rest;
  // By group, in the order of the file.
  std::map<std::string, std::vector<Json>> records;
};

// Replaces NaN and Infinity, which Python writes but JSON lacks, by objects of equal length: then only their
// records are broken, not the file.
std::string without_nan(std::string text) {
  const bool is_json = text.find("NaN") == std::string::npos && text.find("Infinity") == std::string::npos;
  if (is_json) return text;
  const std::array<std::string, 3> words = {"NaN", "-Infinity", "Infinity"};
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (text[i] == '\\') ++i;
    if (in_string) continue;
    for (const std::string& word : words) {
      const bool is_here = text.compare(i, word.size(), word) == 0;
      if (is_here) text.replace(i, word.size(), "{}" + std::string(word.size() - 2, ' '));
    }
  }
  return text;
}

// Takes records out as they end, since an ordered object compares every key with all earlier ones.
Archive archive_from(const std::string& text) {
  Archive archive;
  std::string group;
  const auto is_kept = [&archive, &group](int depth, Json::parse_event_t event, Json& value) {
    require_depth(depth);
    if (event == Json::parse_event_t::key && depth == 1) group = value.get<std::string>();
    const bool is_end = event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end;
    const bool is_record = depth == 2 && (is_end || event == Json::parse_event_t::value);
    if (is_record) archive.records[group].push_back(std::move(value));
    return !is_record;
  };
  archive.rest = Json::parse(without_nan(text), is_kept);
  return archive;
}

const std::vector<Json>& group_of(Archive& archive, const char* group) {
  require(archive.rest.is_object(), group, "the file must contain an object");
  require(archive.rest.contains(group), group, "is missing");
  require(archive.rest.at(group).is_object(), group, "must be an object of id -> record");
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

// Returns whether any lane has a centreline: maps of sensor logs have none.
bool has_centerlines(const std::vector<Json>& lanes) {
  const auto has_one = [](const Json& lane) { return lane.contains("centerline"); };
  return std::any_of(lanes.begin(), lanes.end(), has_one);
}

// Returns the id of a record, or else its number.
std::string name_of(const Json& record, std::size_t index) {
  const bool has_id = record.is_object() && record.contains("id") && !record.at("id").is_null();
  if (!has_id) return "number " + std::to_string(index + 1);
  const Json& id = record.at("id");
  return id.is_string() ? id.get<std::string>() : id.dump();
}

// Reads the records of a group one by one, leaving out broken ones.
template <class Read>
void read_group(Archive& archive, const char* group, const char* kind, MapProblems& problems,
                const Read& read) {
  const std::vector<Json>& records = group_of(archive, group);
  for (std::size_t i = 0; i < records.size(); ++i) {
    try {
      read(Record(records[i], group));
    } catch (const DataError& error) {
      problems.add(kind, name_of(records[i], i), error.what());
    }
  }
}

LaneMap map_from(Archive archive, MapProblems& problems) {
  LaneMap map;
  const bool has_centerline = has_centerlines(group_of(archive, "lane_segments"));
  std::set<std::int64_t> ids;
  read_group(archive, "lane_segments", "lane segment", problems, [&](const Record& record) {
    LaneSegment lane = lane_from(record, has_centerline);
    lane.validate();
    const bool is_new = ids.insert(lane.lane_id).second;
    require(is_new, "lane_segments.id", "occurs twice");
    map.lanes.push_back(std::move(lane));
  });
  read_group(archive, "pedestrian_crossings", "crossing", problems, [&map](const Record& record) {
    Crossing crossing{record.integer("id"), record.polyline("edge1"), record.polyline("edge2")};
    crossing.validate();
    map.crossings.push_back(std::move(crossing));
  });
  const bool none_is_left = map.lanes.empty() && !archive.records["lane_segments"].empty();
  const std::string message = "the map has no lane that road users drive on: " + problems.summary();
  require(!none_is_left, "lanes", message);
  return map;
}

}  // namespace

LaneMap LaneMap::parse(const std::string& json, const Report& report) {
  MapProblems problems;
  try {
    LaneMap map = map_from(archive_from(json), problems);
    const std::string summary = problems.summary();
    if (report && !summary.empty()) report(summary);
    return map;
  } catch (const Json::exception& error) {
    throw DataError(std::string("is not a map in JSON (") + error.what() + ")");
  }
}

LaneMap LaneMap::load(const std::string& path, const Report& report) {
  const auto named = [&path, &report](const std::string& sentence) {
    if (report) report(path + ": " + sentence);
  };
  try {
    return parse(read_file(path, MAX_MAP_BYTES), named);
  } catch (const DataError& error) {
    throw error.located(path);
  }
}

}  // namespace trajpred::onboard
