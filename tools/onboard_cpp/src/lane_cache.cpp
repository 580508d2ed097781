#include "trajpred_onboard/lane_cache.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

// Throws DataError unless all points are within MAX_COORDINATE, as float32 requires.
void require_near(const Polyline& line, const std::string& name) {
  for (const Point point : line) {
    const bool near = std::abs(point.x) <= MAX_COORDINATE && std::abs(point.y) <= MAX_COORDINATE;
    require(near, name, "has a coordinate beyond " + formatted("%g", MAX_COORDINATE) + " m");
  }
}

// Checks everything that reaches a graph, since vehicles' maps pass no reader. Throws DataError.
void validate(const LaneMap& map) {
  map.validate();
  for (const LaneSegment& lane : map.lanes) require_near(lane.centerline, "centerline");
  for (const LaneSegment& lane : map.lanes) require_near(lane.left_boundary, "left_boundary");
  for (const LaneSegment& lane : map.lanes) require_near(lane.right_boundary, "right_boundary");
  for (const Crossing& crossing : map.crossings) require_near(crossing.edge1, "crossing_edge1");
  for (const Crossing& crossing : map.crossings) require_near(crossing.edge2, "crossing_edge2");
}

// Returns where a row of `width` numbers starts.
std::ptrdiff_t start_of(std::size_t row, std::size_t width) {
  return static_cast<std::ptrdiff_t>(row * width);
}

// Returns the rows of `values`, `width` numbers each.
template <class Values>
Values taken(const Values& values, const Rows& rows, std::size_t width) {
  Values result;
  result.reserve(rows.size() * width);
  for (std::size_t row : rows) {
    const auto start = values.begin() + start_of(row, width);
    result.insert(result.end(), start, start + start_of(1, width));
  }
  return result;
}

// Appends the bytes of a row of `values`.
template <class Values>
void append_bytes(const Values& values, std::size_t row, std::size_t width, std::string& bytes) {
  const auto* start = reinterpret_cast<const char*>(values.data() + row * width);
  bytes.append(start, width * sizeof(values[0]));
}

// Returns the bytes of the lane encoder's inputs, which identify a lane.
std::string key(const LaneShapes& shapes, std::size_t row, std::size_t points) {
  std::string bytes;
  append_bytes(shapes.points, row, points * LANE_POINT_CHANNELS, bytes);
  append_bytes(shapes.kind, row, 1, bytes);
  append_bytes(shapes.is_intersection, row, 1, bytes);
  append_bytes(shapes.marks, row, 2, bytes);
  return bytes;
}

}  // namespace

LaneCache::LaneCache(EncodeLanes encode, std::size_t dim, const FeatureConfig& config)
    : encode_(std::move(encode)), dim_(dim), config_(config) {
  set_map(std::make_shared<const LaneMap>());
}

void LaneCache::set_map(std::shared_ptr<const LaneMap> map) {
  if (map == routes_->map) return;
  require(map != nullptr, "map", "must not be null");
  validate(*map);
  const std::shared_ptr<const LaneMap> visible = visible_map(map, config_.omit);
  const std::vector<LaneLines> lines = lane_lines(*visible, config_.lane_points);
  std::vector<Point> midpoint;
  for (const LaneLines& line : lines) midpoint.push_back(line.midpoint);
  LaneShapes shapes = lane_shapes(*visible, lines);
  std::vector<LaneEdge> topology = lane_topology(*visible);
  auto routes = std::make_shared<const Routes>(Routes::of(std::move(map)));
  std::unordered_map<std::string, std::size_t> known;
  for (std::size_t row = 0; row < has_token_.size(); ++row) {
    if (has_token_[row]) known.emplace(key(shapes_, row, config_.lane_points), row);
  }
  Floats tokens(lines.size() * dim_, 0.0f);
  std::vector<char> has_token(lines.size(), 0);
  for (std::size_t row = 0; row < lines.size(); ++row) {
    const auto old_row = known.find(key(shapes, row, config_.lane_points));
    if (old_row == known.end()) continue;
    std::copy_n(tokens_.begin() + start_of(old_row->second, dim_), dim_,
                tokens.begin() + start_of(row, dim_));
    has_token[row] = 1;
  }
  // Nothing below throws: a map that fails leaves the current one unchanged.
  midpoint_ = std::move(midpoint);
  shapes_ = std::move(shapes);
  topology_ = std::move(topology);
  routes_ = std::move(routes);
  tokens_ = std::move(tokens);
  has_token_ = std::move(has_token);
}

SelectedLanes LaneCache::select(const AgentFeatures& agents, Point origin) {
  std::vector<Point> local;
  local.reserve(midpoint_.size());
  for (const Point point : midpoint_) local.push_back(point - origin);
  SelectedLanes selected;
  selected.row = lanes_near(local, agents, config_);
  Rows unencoded;
  for (std::size_t row : selected.row) {
    if (!has_token_[row]) unencoded.push_back(row);
  }
  if (!unencoded.empty()) {
    const Floats tokens = encode_(lane_inputs(unencoded));
    require(tokens.size() == unencoded.size() * dim_, "lane_token", "has another size than the bundle says");
    for (std::size_t i = 0; i < unencoded.size(); ++i) {
      const std::size_t row = unencoded[i];
      std::copy_n(tokens.begin() + start_of(i, dim_), dim_, tokens_.begin() + start_of(row, dim_));
      has_token_[row] = 1;
    }
    encoded_ += unencoded.size();
  }
  for (std::size_t row : selected.row) {
    selected.position.push_back(static_cast<float>(local[row].x));
    selected.position.push_back(static_cast<float>(local[row].y));
  }
  selected.token = taken(tokens_, selected.row, dim_);
  selected.heading = taken(shapes_.heading, selected.row, 1);
  selected.topology = topology_among(selected.row, topology_, local.size());
  return selected;
}

Arrays LaneCache::lane_inputs(const Rows& rows) const {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto points = static_cast<std::int64_t>(config_.lane_points);
  const auto channels = static_cast<std::int64_t>(LANE_POINT_CHANNELS);
  const std::size_t width = config_.lane_points * LANE_POINT_CHANNELS;
  Arrays inputs;
  inputs["points"] = {{count, points, channels}, taken(shapes_.points, rows, width)};
  inputs["kind"] = {{count}, taken(shapes_.kind, rows, 1)};
  inputs["is_intersection"] = {{count}, taken(shapes_.is_intersection, rows, 1)};
  inputs["marks"] = {{count, 2}, taken(shapes_.marks, rows, 2)};
  return inputs;
}

}  // namespace trajpred::onboard
