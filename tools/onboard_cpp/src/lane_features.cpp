#include "trajpred_onboard/lane_features.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

namespace trajpred::onboard {

namespace {

Point middle(Point a, Point b) { return {(a.x + b.x) / 2, (a.y + b.y) / 2}; }

Point midpoint_of(const Polyline& center) {
  const std::size_t half = center.size() / 2;
  return middle(center[half - 1], center[half]);
}

LaneLines lines_of(const LaneSegment& lane, std::size_t points) {
  LaneLines lines;
  lines.center = resample(lane.centerline, points);
  lines.left = resample(lane.left_boundary, points);
  lines.right = resample(lane.right_boundary, points);
  lines.has_left = !lane.left_boundary.empty();
  lines.has_right = !lane.right_boundary.empty();
  lines.midpoint = midpoint_of(lines.center);
  return lines;
}

LaneLines lines_of(const Crossing& crossing, std::size_t points) {
  LaneLines lines;
  lines.left = resample(crossing.edge1, points);
  lines.right = resample(crossing.edge2, points);
  for (std::size_t i = 0; i < points; ++i) {
    lines.center.push_back(middle(lines.left[i], lines.right[i]));
  }
  lines.has_left = true;
  lines.has_right = true;
  lines.midpoint = midpoint_of(lines.center);
  return lines;
}

// Returns the direction of a polyline at its point `i`, as a vector.
Point gradient(const Polyline& line, std::size_t i) {
  const std::size_t last = line.size() - 1;
  if (i == 0) return line[1] - line[0];
  if (i == last) return line[last] - line[last - 1];
  return 0.5 * (line[i + 1] - line[i - 1]);
}

void append(Floats& values, Point point) {
  values.push_back(static_cast<float>(point.x));
  values.push_back(static_cast<float>(point.y));
}

// Appends the points of a lane in its own frame: position, direction, and boundaries from the position.
void append_points(const LaneLines& lines, double heading, Floats& points) {
  const Frame frame({lines.midpoint, heading});
  for (std::size_t i = 0; i < lines.center.size(); ++i) {
    const Point position = frame.to_local(lines.center[i]);
    const Point vector = frame.direction_to_local(gradient(lines.center, i));
    const double length = std::max(norm(vector), 1e-6);
    append(points, {position.x / LENGTH_SCALE, position.y / LENGTH_SCALE});
    append(points, {vector.x / length, vector.y / length});
    append(points, lines.has_left ? frame.to_local(lines.left[i]) - position : Point{});
    append(points, lines.has_right ? frame.to_local(lines.right[i]) - position : Point{});
  }
}

// Edges of a map, the first of each pair of lanes.
class EdgeList {
 public:
  explicit EdgeList(const LaneMap& map) {
    for (const LaneSegment& lane : map.lanes) row_.emplace(lane.lane_id, row_.size());
  }

  void add(std::int64_t sender_id, std::size_t receiver, std::int64_t kind) {
    const auto sender = row_.find(sender_id);
    if (sender == row_.end() || sender->second == receiver) return;
    const bool is_new = pairs_.insert({sender->second, receiver}).second;
    if (is_new) edges.push_back({sender->second, receiver, kind});
  }

  std::vector<LaneEdge> edges;

 private:
  std::unordered_map<std::int64_t, std::size_t> row_;
  std::set<std::pair<std::size_t, std::size_t>> pairs_;
};

double nearest_m(Point midpoint, const AgentFeatures& agents) {
  double nearest = std::numeric_limits<double>::infinity();
  for (std::size_t agent = 0; agent < agents.size(); ++agent) {
    const Point position{agents.position[2 * agent], agents.position[2 * agent + 1]};
    nearest = std::min(nearest, norm(midpoint - position));
  }
  return nearest;
}

// The box around all agents.
struct Box {
  Point low;
  Point high;
};

Box box_around(const AgentFeatures& agents) {
  const double infinity = std::numeric_limits<double>::infinity();
  Box box{{infinity, infinity}, {-infinity, -infinity}};
  for (std::size_t agent = 0; agent < agents.size(); ++agent) {
    const double x = agents.position[2 * agent];
    const double y = agents.position[2 * agent + 1];
    box.low = {std::min(box.low.x, x), std::min(box.low.y, y)};
    box.high = {std::max(box.high.x, x), std::max(box.high.y, y)};
  }
  return box;
}

bool is_outside(Point point, const Box& box, double margin) {
  const bool beside = point.x < box.low.x - margin || point.x > box.high.x + margin;
  return beside || point.y < box.low.y - margin || point.y > box.high.y + margin;
}

// Removes attributes that the model omits from a lane.
void remove(const Omitted& omit, LaneSegment& lane) {
  const LaneSegment unrecorded;
  if (omit.boundaries) {
    lane.left_boundary.clear();
    lane.right_boundary.clear();
  }
  if (omit.marks) {
    lane.left_mark = unrecorded.left_mark;
    lane.right_mark = unrecorded.right_mark;
  }
  if (omit.lane_types) lane.lane_type = unrecorded.lane_type;
}

}  // namespace

std::shared_ptr<const LaneMap> visible_map(std::shared_ptr<const LaneMap> map, const Omitted& omit) {
  const bool is_whole = !omit.boundaries && !omit.marks && !omit.lane_types && !omit.crossings;
  if (is_whole) return map;
  auto visible = std::make_shared<LaneMap>(*map);
  for (LaneSegment& lane : visible->lanes) remove(omit, lane);
  if (omit.crossings) visible->crossings.clear();
  return visible;
}

std::vector<LaneLines> lane_lines(const LaneMap& map, std::size_t points) {
  std::vector<LaneLines> lines;
  for (const LaneSegment& lane : map.lanes) lines.push_back(lines_of(lane, points));
  for (const Crossing& crossing : map.crossings) lines.push_back(lines_of(crossing, points));
  return lines;
}

LaneShapes lane_shapes(const LaneMap& map, const std::vector<LaneLines>& lines) {
  LaneShapes shapes;
  for (std::size_t row = 0; row < lines.size(); ++row) {
    const Polyline& center = lines[row].center;
    const std::size_t half = center.size() / 2;
    const double heading = direction(center[half] - center[half - 1]);
    shapes.heading.push_back(static_cast<float>(heading));
    append_points(lines[row], heading, shapes.points);
    const bool is_lane = row < map.lanes.size();
    shapes.kind.push_back(is_lane ? map.lanes[row].lane_type : static_cast<int>(LANE_TYPES.size()));
    shapes.is_intersection.push_back(is_lane && map.lanes[row].is_intersection ? 1 : 0);
    shapes.marks.push_back(is_lane ? map.lanes[row].left_mark : 0);
    shapes.marks.push_back(is_lane ? map.lanes[row].right_mark : 0);
  }
  return shapes;
}

std::vector<LaneEdge> lane_topology(const LaneMap& map) {
  EdgeList list(map);
  const std::size_t count = map.lanes.size();
  for (std::size_t row = 0; row < count; ++row) {
    for (std::int64_t id : map.lanes[row].successors) list.add(id, row, 1);
  }
  for (std::size_t row = 0; row < count; ++row) {
    for (std::int64_t id : map.lanes[row].predecessors) list.add(id, row, 2);
  }
  for (std::size_t row = 0; row < count; ++row) list.add(map.lanes[row].left_neighbor, row, 3);
  for (std::size_t row = 0; row < count; ++row) list.add(map.lanes[row].right_neighbor, row, 4);
  return std::move(list.edges);
}

Rows lanes_near(const std::vector<Point>& midpoint, const AgentFeatures& agents,
                const FeatureConfig& config) {
  const Box box = box_around(agents);
  std::vector<double> distance_m(midpoint.size());
  Rows near;
  for (std::size_t row = 0; row < midpoint.size(); ++row) {
    // The map may cover a city: most lanes cost one comparison. A metre covers rounding.
    if (is_outside(midpoint[row], box, config.lane_radius_m + 1)) continue;
    distance_m[row] = nearest_m(midpoint[row], agents);
    if (distance_m[row] <= config.lane_radius_m) near.push_back(row);
  }
  const auto nearer = [&distance_m](std::size_t a, std::size_t b) { return distance_m[a] < distance_m[b]; };
  return smallest(std::move(near), config.max_lanes, nearer);
}

Integers topology_among(const Rows& keep, const std::vector<LaneEdge>& edges, std::size_t rows) {
  constexpr auto ABSENT = static_cast<std::size_t>(-1);
  std::vector<std::size_t> node(rows, ABSENT);
  for (std::size_t i = 0; i < keep.size(); ++i) node[keep[i]] = i;
  Integers topology(keep.size() * keep.size(), 0);
  for (const LaneEdge& edge : edges) {
    const std::size_t sender = node[edge.sender];
    const std::size_t receiver = node[edge.receiver];
    if (sender == ABSENT || receiver == ABSENT) continue;
    topology[receiver * keep.size() + sender] = edge.kind;
  }
  return topology;
}

}  // namespace trajpred::onboard
