// The lane segments of the map and their tokens: trajpred/onboard/lane_cache.py.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trajpred_onboard/lane_features.hpp"
#include "trajpred_onboard/lane_paths.hpp"

namespace trajpred::onboard {

// The lane segments and crossings near the agents.
struct SelectedLanes {
  // Rows of the map: lane segments, then crossings.
  Rows row;
  // [L, D].
  Floats token;
  // [L, 2] metres from the origin.
  Floats position;
  // [L] radians.
  Floats heading;
  // [L, L] as in the encoder's interface.
  Integers topology;
};

// Computes tokens [L, D] from the arrays `points`, `kind`, `is_intersection` and `marks` of L lanes.
using EncodeLanes = std::function<Floats(const Arrays& inputs)>;

// The current map with the tokens of its lanes: each lane is encoded once while the vehicle moves.
//
// Lanes are identified by the encoder's inputs: a lane with the same id and a new shape gets a new token, and
// a new map with known lanes needs no encoding. Tokens of lanes outside the map are dropped.
class LaneCache {
 public:
  LaneCache(EncodeLanes encode, std::size_t dim, const FeatureConfig& config);

  // Replaces the map; does nothing if it is the current object.
  // Throws DataError if the map is invalid; the current map stays.
  void set_map(std::shared_ptr<const LaneMap> map);

  // Selects the lanes near the agents, and encodes lanes without a token. `origin`: metres, frame of the map.
  SelectedLanes select(const AgentFeatures& agents, Point origin);

  // Returns the lane encoder's inputs for rows of the map, by name.
  Arrays lane_inputs(const Rows& rows) const;

  const std::shared_ptr<const LaneMap>& map() const { return routes_->map; }
  const std::shared_ptr<const Routes>& routes() const { return routes_; }
  // Returns the number of lanes encoded so far.
  std::size_t encoded() const { return encoded_; }

 private:
  EncodeLanes encode_;
  std::size_t dim_;
  FeatureConfig config_;
  std::size_t encoded_ = 0;
  std::shared_ptr<const Routes> routes_ = std::make_shared<const Routes>();
  std::vector<Point> midpoint_;
  LaneShapes shapes_;
  std::vector<LaneEdge> topology_;
  Floats tokens_;
  std::vector<char> has_token_;
};

}  // namespace trajpred::onboard
