#include "trajpred_onboard/encoder.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/lane_futures.hpp"
#include "trajpred_onboard/laplacian.hpp"

namespace trajpred::onboard {

namespace {

// Relative difference up to which steps count as equal, due to clock jitter.
constexpr double SAME_STEP = 0.1;

double now_ms() {
  const auto passed = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(passed).count();
}

std::int64_t signed_size(std::size_t size) { return static_cast<std::int64_t>(size); }

// Appends zeros up to `rows` rows.
template <class Values>
Array pad(Values values, Shape shape) {
  std::size_t size = 1;
  for (std::int64_t length : shape) size *= static_cast<std::size_t>(length);
  require(values.size() <= size, "sizes", "the bundle has more agents or lanes than its fixed sizes");
  values.resize(size);
  return {std::move(shape), std::move(values)};
}

Flags first_valid(std::size_t valid, std::size_t size) {
  Flags flags(size, 0);
  std::fill_n(flags.begin(), std::min(valid, size), std::uint8_t{1});
  return flags;
}

// Pads the square matrix of the topology.
Array pad_topology(const Integers& topology, std::size_t lanes, std::size_t size) {
  require(lanes <= size, "sizes", "the bundle has more lanes than its fixed size");
  Integers padded(size * size, 0);
  for (std::size_t row = 0; row < lanes; ++row) {
    const auto start = topology.begin() + static_cast<std::ptrdiff_t>(row * lanes);
    std::copy_n(start, lanes, padded.begin() + static_cast<std::ptrdiff_t>(row * size));
  }
  return {{signed_size(size), signed_size(size)}, std::move(padded)};
}

Array scalar(double value) { return {{}, Floats{static_cast<float>(value)}}; }

const Floats& floats(const Arrays& arrays, const std::string& name) {
  return std::get<Floats>(arrays.at(name).values);
}

// Returns the poses of nodes in the frame of the map.
std::vector<Pose> global_poses(const Arrays& inputs, const std::string& node, std::size_t count,
                               Point origin) {
  const Floats& position = floats(inputs, node + "_position");
  const Floats& heading = floats(inputs, node + "_heading");
  std::vector<Pose> poses;
  for (std::size_t i = 0; i < count; ++i) {
    const Point local{position[2 * i], position[2 * i + 1]};
    poses.push_back({local + origin, heading[i]});
  }
  return poses;
}

// Returns `rows` rows of tokens, zeros from row `valid` on.
Floats masked(const Floats& tokens, std::size_t valid, std::size_t rows, std::size_t dim) {
  Floats result(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(rows * dim));
  std::fill(result.begin() + static_cast<std::ptrdiff_t>(valid * dim), result.end(), 0.0f);
  return result;
}

}  // namespace

Timed::Timed(StageTimes& stage_ms, const char* stage) : total_ms_(stage_ms[stage]), start_ms_(now_ms()) {}

Timed::~Timed() { total_ms_ += now_ms() - start_ms_; }

Encoder::Encoder(Bundle bundle, std::unique_ptr<Graphs> graphs)
    : bundle_(std::move(bundle)),
      graphs_(std::move(graphs)),
      lanes_([this](const Arrays& inputs) { return encode_lanes(inputs); }, bundle_.dim(),
             bundle_.features()) {
  require(graphs_ != nullptr, "graphs", "must not be null");
  require_graph("lane_encoder");
  require_graph("encoder");
}

void Encoder::require_graph(const std::string& graph) const {
  const std::string advice = "export the whole model without --part";
  const bool exists = bundle_.graphs().count(graph) > 0;
  if (!exists) throw DataError("has no graph " + graph + ": " + advice, "", bundle_.path());
  const Signature& signature = graphs_->signature(graph);
  bundle_.require_signature(graph, signature);
  for (const Port& port : signature.inputs) {
    const bool computable = port.name != "lane_eigenvectors" || has_laplacian();
    if (!computable) throw DataError("needs Eigen: build the library with it", port.name, bundle_.path());
  }
}

Tokens Encoder::encode(const Scene& scene) {
  LocalScene local = localise(scene);
  run_encoder(local);
  const Timed timed(stage_ms_, "output");
  const std::size_t agents = local.agents.size();
  const std::size_t lanes = local.lane_row.size();
  const std::size_t rows = bundle_.sizes() ? bundle_.sizes()->agents : agents;
  const std::size_t columns = bundle_.sizes() ? bundle_.sizes()->lanes : lanes;
  Tokens tokens = empty_tokens();
  tokens.track_id = local.agents.track_id;
  tokens.track_id.resize(rows);
  tokens.agent = masked(floats(local.inputs, "agent_token"), agents, rows, bundle_.dim());
  tokens.agent_pose = global_poses(local.inputs, "agent", agents, local.origin);
  tokens.agent_pose.resize(rows);
  tokens.agent_valid = first_valid(agents, rows);
  tokens.lane_row.assign(local.lane_row.begin(), local.lane_row.end());
  tokens.lane_row.resize(columns, -1);
  tokens.lane = masked(floats(local.inputs, "lane_context"), lanes, columns, bundle_.dim());
  tokens.lane_pose = global_poses(local.inputs, "lane", lanes, local.origin);
  tokens.lane_pose.resize(columns);
  tokens.lane_valid = first_valid(lanes, columns);
  return tokens;
}

Tokens Encoder::empty_tokens() const {
  Tokens tokens;
  if (!bundle_.sizes()) return tokens;
  const std::size_t agents = bundle_.sizes()->agents;
  const std::size_t lanes = bundle_.sizes()->lanes;
  tokens.track_id.resize(agents);
  tokens.agent.resize(agents * bundle_.dim());
  tokens.agent_pose.resize(agents);
  tokens.agent_valid.resize(agents);
  tokens.lane_row.resize(lanes, -1);
  tokens.lane.resize(lanes * bundle_.dim());
  tokens.lane_pose.resize(lanes);
  tokens.lane_valid.resize(lanes);
  return tokens;
}

LocalScene Encoder::localise(const Scene& scene) {
  scene.validate();
  const double expected_s = bundle_.step_s();
  const bool same_step = std::abs(scene.step_s - expected_s) <= SAME_STEP * expected_s;
  const std::string takes = formatted("%g", expected_s) + " s";
  require(same_step, "step_s", "is " + formatted("%g", scene.step_s) + " s, the bundle takes " + takes);
  stage_ms_.clear();
  {
    const Timed timed(stage_ms_, "lanes");
    lanes_.set_map(scene.map ? scene.map : std::make_shared<const LaneMap>());
  }
  LocalScene local;
  local.step_s = scene.step_s;
  double heading = 0.0;
  {
    const Timed timed(stage_ms_, "features");
    const bool fits = scene.num_observed() == bundle_.history();
    const Scene resized = fits ? Scene{} : scene.window(bundle_.history());
    const Scene& window = fits ? scene : resized;
    const Pose focal = focal_pose(window, *lanes_.routes());
    local.origin = focal.position;
    heading = focal.heading;
    local.agents = agent_features(window, local.origin, bundle_.features(), *lanes_.routes());
    require(local.agents.size() > 0, "tracks", "contain none that was observed recently");
  }
  SelectedLanes lanes;
  {
    const Timed timed(stage_ms_, "lanes");
    lanes = lanes_.select(local.agents, local.origin);
  }
  const Timed timed(stage_ms_, "features");
  local.lane_row = lanes.row;
  local.inputs = padded(local.agents, lanes);
  local.inputs["step_s"] = scalar(scene.step_s);
  local.inputs["scene_heading"] = scalar(heading);
  return local;
}

void Encoder::run_encoder(LocalScene& scene) {
  const Timed timed(stage_ms_, "encoder");
  const std::int64_t agents = scene.inputs.at("agent_valid").shape[0];
  const std::int64_t lanes = scene.inputs.at("lane_valid").shape[0];
  const std::int64_t dim = signed_size(bundle_.dim());
  Arrays tokens =
      run("encoder", scene.inputs, {{"agent_token", {agents, dim}}, {"lane_context", {lanes, dim}}});
  for (auto& [name, values] : tokens) scene.inputs[name] = std::move(values);
}

Arrays Encoder::run(const std::string& graph, const Arrays& values,
                    const std::map<std::string, Shape>& shapes) {
  Arrays outputs = graphs_->run(graph, values);
  for (const auto& [name, shape] : shapes) {
    const auto output = outputs.find(name);
    const bool is_float = output != outputs.end() && std::holds_alternative<Floats>(output->second.values);
    require(is_float, name, "is not a float32 output of graph " + graph);
    require(output->second.shape == shape, name, "has another shape than bundle.json says");
  }
  return outputs;
}

// Computes tokens [L, D]; the selection is never larger than the bundle's fixed size.
Floats Encoder::encode_lanes(Arrays inputs) {
  const std::int64_t count = inputs.at("kind").shape[0];
  if (bundle_.sizes()) {
    for (auto& input : inputs) {
      Array& array = input.second;  // by name: C++17 captures no structured binding
      array.shape[0] = signed_size(bundle_.sizes()->lanes);
      const auto padded_to = [&array](auto& values) { return pad(std::move(values), array.shape); };
      array = std::visit(padded_to, array.values);
    }
  }
  const std::int64_t rows = inputs.at("kind").shape[0];
  Arrays outputs = run("lane_encoder", inputs, {{"lane_token", {rows, signed_size(bundle_.dim())}}});
  Floats tokens = std::get<Floats>(std::move(outputs.at("lane_token").values));
  tokens.resize(static_cast<std::size_t>(count) * bundle_.dim());
  return tokens;
}

// Returns the inputs of encoder and decoder, padded to the fixed sizes or to at least one lane.
Arrays Encoder::padded(AgentFeatures& agents, SelectedLanes& lanes) {
  const std::size_t found_lanes = lanes.row.size();
  const std::size_t A = bundle_.sizes() ? bundle_.sizes()->agents : agents.size();
  const std::size_t L = bundle_.sizes() ? bundle_.sizes()->lanes : std::max<std::size_t>(found_lanes, 1);
  const std::int64_t a = signed_size(A);
  const std::int64_t l = signed_size(L);
  const std::int64_t steps = signed_size(bundle_.history());
  const std::int64_t future = signed_size(bundle_.features().anchor_steps);
  const std::int64_t modes = signed_size(MODES);
  Arrays inputs;
  inputs["history"] = pad(std::move(agents.history), {a, steps, signed_size(HISTORY_CHANNELS)});
  inputs["object_type"] = pad(agents.object_type, {a});
  inputs["agent_position"] = pad(agents.position, {a, 2});
  inputs["agent_heading"] = pad(agents.heading, {a});
  inputs["agent_velocity"] = pad(agents.velocity, {a, 2});
  inputs["agent_elapsed_s"] = pad(agents.elapsed_s, {a});
  inputs["agent_anchors"] = pad(std::move(agents.anchors), {a, modes, future, 2});
  inputs["agent_valid"] = {{a}, first_valid(agents.size(), A)};
  inputs["lane_token"] = pad(std::move(lanes.token), {l, signed_size(bundle_.dim())});
  inputs["lane_position"] = pad(std::move(lanes.position), {l, 2});
  inputs["lane_heading"] = pad(std::move(lanes.heading), {l});
  inputs["lane_valid"] = {{l}, first_valid(found_lanes, L)};
  if (bundle_.eigenvectors() > 0) {
    Floats vectors = laplacian_eigenvectors(lanes.topology, found_lanes, bundle_.eigenvectors());
    inputs["lane_eigenvectors"] = pad(std::move(vectors), {l, signed_size(bundle_.eigenvectors())});
  }
  inputs["lane_topology"] = pad_topology(lanes.topology, found_lanes, L);
  return inputs;
}

}  // namespace trajpred::onboard
