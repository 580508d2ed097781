// Where the lanes of a map lead: Routes of lane_paths.hpp.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "trajpred_onboard/lane_paths.hpp"

namespace trajpred::onboard {

namespace {

// Steps shorter than this have no direction (m).
constexpr double MIN_STEP_M = 1e-6;

Route route_of(const Polyline& centerline) {
  Route route{&centerline, arc_length(centerline), {}, centerline[0], centerline[0], {}, NO_ROW};
  for (std::size_t i = 0; i < centerline.size(); ++i) {
    const Point point = centerline[i];
    route.low = {std::min(route.low.x, point.x), std::min(route.low.y, point.y)};
    route.high = {std::max(route.high.x, point.x), std::max(route.high.y, point.y)};
    if (i + 1 == centerline.size()) break;
    const Point step = centerline[i + 1] - point;
    const double size_m = norm(step);
    if (size_m <= MIN_STEP_M) continue;
    route.segments.push_back({point, step, size_m, direction(step), route.arc[i]});
  }
  return route;
}

}  // namespace

Routes Routes::of(std::shared_ptr<const LaneMap> map) {
  if (!map) map = std::make_shared<const LaneMap>();
  Routes result{std::move(map), {}};
  std::unordered_map<std::int64_t, std::size_t> row;
  for (const LaneSegment& lane : result.map->lanes) {
    row.emplace(lane.lane_id, result.routes.size());
    result.routes.push_back(route_of(lane.centerline));
  }
  for (std::size_t i = 0; i < result.routes.size(); ++i) {
    Rows& following = result.routes[i].following;
    const std::vector<std::int64_t>& successors = result.map->lanes[i].successors;
    for (std::int64_t lane_id : successors) {
      const auto entry = row.find(lane_id);
      if (entry == row.end()) continue;
      // The last of several forks into a lane counts.
      if (successors.size() > 1) result.routes[entry->second].fork = i;
      const bool repeated = std::count(following.begin(), following.end(), entry->second) > 0;
      if (!repeated) following.push_back(entry->second);
    }
  }
  return result;
}

}  // namespace trajpred::onboard
