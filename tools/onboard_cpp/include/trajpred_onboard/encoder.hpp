// Runs the encoder of a bundle: tracks and map in the map's frame -> tokens: trajpred/onboard/encoder.py.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trajpred_onboard/agents.hpp"
#include "trajpred_onboard/arrays.hpp"
#include "trajpred_onboard/bundle.hpp"
#include "trajpred_onboard/lane_cache.hpp"
#include "trajpred_onboard/scenario.hpp"

namespace trajpred::onboard {

// The graphs of a bundle in a runtime for ONNX; open_graphs() in onnx.hpp uses ONNX Runtime.
class Graphs {
 public:
  virtual ~Graphs() = default;

  // Returns the inputs and outputs of a graph's file.
  virtual const Signature& signature(const std::string& graph) const = 0;

  // Runs a graph and returns its outputs by name; `values` may hold more than its inputs.
  virtual Arrays run(const std::string& graph, const Arrays& values) = 0;
};

// The encoder's output for one scene, for planners with their own head.
//
// With fixed sizes, A and L are those of the bundle and the last rows are padding; otherwise every row is
// valid. Poses are in the frame of the map.
struct Tokens {
  // [A], empty for padding.
  std::vector<std::string> track_id;
  // [A, D], 0 for padding.
  Floats agent;
  // [A] last observed poses.
  std::vector<Pose> agent_pose;
  Flags agent_valid;
  // [L] rows of the map: lane segments, then crossings; -1 for padding.
  Integers lane_row;
  // [L, D], 0 for padding.
  Floats lane;
  // [L] midpoints and directions.
  std::vector<Pose> lane_pose;
  Flags lane_valid;
};

// One scene as the input of the graphs.
struct LocalScene {
  // Metres, frame of the map: the focal agent's last observed position.
  Point origin;
  // Without history and anchors, which are inputs.
  AgentFeatures agents;
  Rows lane_row;
  // Padded inputs of encoder and decoder, by name (all but `target`).
  Arrays inputs;
  double step_s;
};

// Milliseconds by stage.
using StageTimes = std::map<std::string, double>;

// Encodes whole scenes with a bundle; StreamingEncoder also keeps histories.
//
// Not thread-safe, and neither are two streams of one encoder: use one per thread. Lanes, their tokens and
// times are kept between calls.
class Encoder {
 public:
  // Throws DataError if the bundle lacks a graph, or a graph has other inputs, outputs or sizes.
  Encoder(Bundle bundle, std::unique_ptr<Graphs> graphs);
  virtual ~Encoder() = default;
  // The lane cache refers to the object.
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Encodes the agents and lanes of a scene. The map object of the previous call is not processed again.
  // Throws DataError if the scene is invalid or its step differs from the bundle's.
  Tokens encode(const Scene& scene);

  // Returns tokens of no agents and lanes; with fixed sizes, of padding only.
  Tokens empty_tokens() const;

  // Computes the inputs of the graphs; lanes without a token are encoded. Throws DataError.
  LocalScene localise(const Scene& scene);

  const Bundle& bundle() const { return bundle_; }
  LaneCache& lanes() { return lanes_; }
  const LaneCache& lanes() const { return lanes_; }
  // Milliseconds of each stage of the latest call: features, lanes, encoder, decoder, output.
  const StageTimes& stage_ms() const { return stage_ms_; }

 protected:
  // Checks inputs and outputs of a graph. Throws DataError.
  void require_graph(const std::string& graph) const;

  // Runs the encoder and adds its outputs to the inputs of the scene.
  void run_encoder(LocalScene& scene);

  // Runs a graph, whose outputs must have these shapes. Throws DataError.
  Arrays run(const std::string& graph, const Arrays& values, const std::map<std::string, Shape>& shapes);

  StageTimes stage_ms_;

 private:
  Floats encode_lanes(Arrays inputs);
  Arrays padded(AgentFeatures& agents, SelectedLanes& lanes);

  Bundle bundle_;
  std::unique_ptr<Graphs> graphs_;
  LaneCache lanes_;
};

// Adds the time until the end of the block to a stage.
class Timed {
 public:
  Timed(StageTimes& stage_ms, const char* stage);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& total_ms_;
  double start_ms_;
};

}  // namespace trajpred::onboard
