#include "trajpred_onboard/lane_map.hpp"

#include <cstdio>
#include <set>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

void require_points(const Polyline& line, std::size_t shortest, const std::string& name) {
  const std::string message = "contains a row shorter than " + std::to_string(shortest);
  require(line.size() >= shortest, name, message);
  for (const Point point : line) require(is_finite(point), name, "contains a non-finite value");
}

void require_index(int value, std::size_t size, const std::string& name) {
  const bool within = value >= 0 && value < static_cast<int>(size);
  require(within, name, "must be 0 to " + std::to_string(size - 1));
}

}  // namespace

void report_to_stderr(const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); }

void LaneSegment::validate() const {
  const bool is_reserved = lane_id == NO_LANE;
  require(!is_reserved, "lane_id", "contains -1, which stands for no neighbour: number the lanes from 0");
  require_index(lane_type, LANE_TYPES.size(), "lane_type");
  require_index(left_mark, MARK_TYPES.size(), "left_mark");
  require_index(right_mark, MARK_TYPES.size(), "right_mark");
  require_points(centerline, 2, "centerline");
  require_points(left_boundary, 0, "left_boundary");
  require_points(right_boundary, 0, "right_boundary");
}

void Crossing::validate() const {
  require_points(edge1, 2, "crossing_edge1");
  require_points(edge2, 2, "crossing_edge2");
}

void LaneMap::validate() const {
  std::set<std::int64_t> ids;
  for (const LaneSegment& lane : lanes) {
    const bool is_new = ids.insert(lane.lane_id).second;
    require(is_new, "lane_id", "contains a duplicate");
    lane.validate();
  }
  for (const Crossing& crossing : crossings) crossing.validate();
}

}  // namespace trajpred::onboard
