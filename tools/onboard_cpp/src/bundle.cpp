#include "trajpred_onboard/bundle.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "files.hpp"
#include "json_text.hpp"
#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/lane_futures.hpp"

namespace trajpred::onboard {

namespace {

using nlohmann::json;

constexpr const char* MANIFEST = "bundle.json";
// Limits on a file and on the manifest (bytes), against damaged or hostile bundles.
constexpr std::uintmax_t MAX_FILE_BYTES = std::uintmax_t{1} << 29;
constexpr std::uintmax_t MAX_MANIFEST_BYTES = std::uintmax_t{1} << 22;
// Largest integer and largest real number in a model's description.
constexpr std::int64_t MAX_SIZE = 10'000;
constexpr double MAX_NUMBER = 1e6;

// Inputs and outputs of all graphs; constants are sizes of the interface, letters those of sizes_by_letter().
const std::vector<Port> PORTS = {
    {"points", "float32", {"L", "P", std::to_string(LANE_POINT_CHANNELS)}},
    {"kind", "int64", {"L"}},
    {"is_intersection", "int64", {"L"}},
    {"marks", "int64", {"L", "2"}},
    {"lane_token", "float32", {"L", "D"}},
    {"history", "float32", {"A", "T", std::to_string(HISTORY_CHANNELS)}},
    {"object_type", "int64", {"A"}},
    {"agent_position", "float32", {"A", "2"}},
    {"agent_heading", "float32", {"A"}},
    {"agent_valid", "bool", {"A"}},
    {"agent_velocity", "float32", {"A", "2"}},
    {"agent_elapsed_s", "float32", {"A"}},
    {"agent_anchors", "float32", {"A", std::to_string(MODES), "S", "2"}},
    {"lane_position", "float32", {"L", "2"}},
    {"lane_heading", "float32", {"L"}},
    {"lane_valid", "bool", {"L"}},
    {"lane_topology", "int64", {"L", "L"}},
    {"lane_eigenvectors", "float32", {"L", "W"}},
    {"scene_heading", "float32", {}},
    {"step_s", "float32", {}},
    {"agent_token", "float32", {"A", "D"}},
    {"lane_context", "float32", {"L", "D"}},
    {"target", "int64", {"B"}},
    {"trajectory", "float32", {"B", "K", "F", "2"}},
    {"scale", "float32", {"B", "K", "F", "2"}},
    {"probability", "float32", {"B", "K"}},
};

// The possible inputs of a graph and its required outputs, in this order.
struct PortNames {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

const std::map<std::string, PortNames> GRAPHS = {
    {"lane_encoder", {{"points", "kind", "is_intersection", "marks"}, {"lane_token"}}},
    {"encoder",
     {{"history", "object_type", "agent_position", "agent_heading", "agent_valid", "lane_token",
       "lane_position", "lane_heading", "lane_valid", "lane_topology", "agent_velocity", "agent_elapsed_s",
       "lane_eigenvectors", "scene_heading", "step_s"},
      {"agent_token", "lane_context"}}},
    {"decoder",
     {{"agent_token", "lane_context", "agent_position", "agent_heading", "agent_valid", "agent_velocity",
       "agent_elapsed_s", "agent_anchors", "lane_position", "lane_heading", "lane_valid", "target", "step_s",
       "history", "object_type", "lane_topology", "lane_eigenvectors", "scene_heading"},
      {"trajectory", "scale", "probability"}}},
};

// Reads an integer from `least` to MAX_SIZE.
std::size_t size_of(const json& values, const std::string& name, std::int64_t least) {
  const json& value = values.at(name);
  const std::string range = std::to_string(least) + " to " + std::to_string(MAX_SIZE);
  const std::string message =
      "must be an integer from " + range + ", is " + shortened(value.dump(), MAX_QUOTED);
  require(value.is_number_integer(), name, message);
  const auto number = value.get<std::int64_t>();
  require(least <= number && number <= MAX_SIZE, name, message);
  return static_cast<std::size_t>(number);
}

// Reads a number from 0 to MAX_NUMBER.
double number_of(const json& values, const std::string& name) {
  const json& value = values.at(name);
  const std::string limit = formatted("%g", MAX_NUMBER);
  const std::string message =
      "must be a number from 0 to " + limit + ", is " + shortened(value.dump(), MAX_QUOTED);
  require(value.is_number(), name, message);
  const auto number = value.get<double>();
  require(0 <= number && number <= MAX_NUMBER, name, message);
  return number;
}

// Reads the names of attributes that a model does not read.
Omitted omitted_of(const json& values) {
  const std::string message = "must list any of boundaries, marks, lane_types, crossings, classes, is " +
                              shortened(values.dump(), MAX_QUOTED);
  require(values.is_array(), "omit", message);
  Omitted omitted;
  for (const json& name : values) {
    if (name == "boundaries") omitted.boundaries = true;
    else if (name == "marks") omitted.marks = true;
    else if (name == "lane_types") omitted.lane_types = true;
    else if (name == "crossings") omitted.crossings = true;
    else if (name == "classes") omitted.classes = true;
    else throw DataError(message, "omit");
  }
  return omitted;
}

FeatureConfig features_of(const json& values) {
  FeatureConfig config;
  // An unknown option would change the features.
  for (const auto& [name, value] : values.items()) {
    if (name == "memory_s") config.memory_s = number_of(values, name);
    else if (name == "max_agents") config.max_agents = size_of(values, name, 1);
    else if (name == "max_lanes") config.max_lanes = size_of(values, name, 0);
    else if (name == "lane_radius_m") config.lane_radius_m = number_of(values, name);
    else if (name == "lane_points") config.lane_points = size_of(values, name, 2);
    else if (name == "history") config.history = size_of(values, name, 0);
    else if (name == "future") config.future = size_of(values, name, 0);
    else if (name == "anchor_steps") config.anchor_steps = size_of(values, name, 0);
    else if (name == "omit") config.omit = omitted_of(value);
    else throw DataError("is not known to this version of the library", name);
  }
  require(config.lane_points % 2 == 0, "lane_points", "must be even and positive");
  return config;
}

const Port& known_port(const std::string& name) {
  const auto has_name = [&name](const Port& port) { return port.name == name; };
  return *std::find_if(PORTS.begin(), PORTS.end(), has_name);
}

bool is_number(const std::string& size) {
  return !size.empty() && size.find_first_not_of("0123456789") == std::string::npos;
}

std::string described(const Port& port) {
  return port.name + " as " + port.dtype + " [" + joined_names(port.shape) + "]";
}

std::vector<std::string> names_of(const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  return names;
}

// Compares type, number of axes and constant sizes of a port of the graph `file`.
void require_kind(const std::string& file, const Port& found, const Port& expected) {
  bool same = found.dtype == expected.dtype && found.shape.size() == expected.shape.size();
  for (std::size_t axis = 0; same && axis < found.shape.size(); ++axis) {
    const bool are_numbers = is_number(found.shape[axis]) && is_number(expected.shape[axis]);
    if (are_numbers) same = found.shape[axis] == expected.shape[axis];
  }
  if (same) return;
  throw DataError("has " + described(found) + ", must have " + described(expected), found.name, file);
}

std::vector<Port> ports_of(const json& values) {
  std::vector<Port> ports;
  for (const json& value : values) {
    Port port{value.at("name"), value.at("dtype"), {}};
    for (const json& size : value.at("shape")) {
      port.shape.push_back(size.is_string() ? size.get<std::string>() : size.dump());
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace

Bundle::Bundle(const std::string& path) : path_(path) {
  namespace fs = std::filesystem;
  std::error_code error;  // of a path that may not be searched, which is then taken as missing
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    throw DataError("no such bundle; make one with trajpred export --out " + path, "", path);
  if (!fs::is_directory(status)) throw DataError("is not a folder; a zip file has to be unpacked first", "", path);
  const std::string manifest = (fs::path(path) / MANIFEST).string();
  const bool is_bundle = fs::exists(manifest, error);
  const std::string advice = std::string("it has no ") + MANIFEST + "; trajpred export makes one";
  if (!is_bundle) throw DataError("not a bundle: " + advice, "", path);
  try {
    parse(read_file(manifest, MAX_MANIFEST_BYTES));
  } catch (const DataError& error) {
    throw error.located(manifest);
  } catch (const json::exception& error) {
    throw DataError(std::string("not a manifest (") + error.what() + ")", "", manifest);
  }
}

std::string Bundle::read(const std::string& name) const {
  const auto expected = sha256_.find(name);
  if (expected == sha256_.end()) throw DataError("has no " + name, "", path_);
  const std::string file = (std::filesystem::path(path_) / name).string();
  std::string content = read_file(file, MAX_FILE_BYTES);
  const bool same = sha256(content) == expected->second;
  if (!same) throw DataError("damaged: differs from the exported file", "", file);
  return content;
}

void Bundle::require_signature(const std::string& graph, const Signature& found) const {
  const std::string file = (std::filesystem::path(path_) / (graph + ".onnx")).string();
  const PortNames& names = GRAPHS.at(graph);
  std::vector<std::string> unknown;
  for (const Port& port : found.inputs) {
    const bool known = std::count(names.inputs.begin(), names.inputs.end(), port.name) > 0;
    if (!known) unknown.push_back(port.name);
  }
  if (!unknown.empty()) throw DataError("contain the unknown " + joined_names(unknown), "inputs", file);
  const std::vector<std::string> outputs = names_of(found.outputs);
  const std::string message = "are " + joined_names(outputs) + ", must be " + joined_names(names.outputs);
  if (outputs != names.outputs) throw DataError(message, "outputs", file);
  for (const std::vector<Port>& ports : {found.inputs, found.outputs}) {
    for (const Port& port : ports) {
      require_kind(file, port, known_port(port.name));
      require_sizes(file, port, known_port(port.name));
    }
  }
}

// Compares the shape of a port of the graph `file` with the sizes in `bundle.json`.
void Bundle::require_sizes(const std::string& file, const Port& found, const Port& expected) const {
  struct Size {
    const char* field;
    std::optional<std::size_t> value;
  };
  const auto agents = sizes_ ? std::optional(sizes_->agents) : std::nullopt;
  const auto lanes = sizes_ ? std::optional(sizes_->lanes) : std::nullopt;
  const std::map<std::string, Size> by_letter = {
      {"A", {"sizes", agents}},
      {"B", {"sizes", agents}},
      {"L", {"sizes", lanes}},
      {"T", {"history", history_}},
      {"P", {"lane_points", features_.lane_points}},
      {"D", {"dim", dim_}},
      {"K", {"modes", modes_}},
      {"F", {"horizon", horizon_}},
      {"S", {"anchor_steps", features_.anchor_steps}},
      {"W", {"eigenvectors", eigenvectors_}},
  };
  for (std::size_t axis = 0; axis < found.shape.size(); ++axis) {
    const auto letter = by_letter.find(expected.shape[axis]);
    const bool is_compared = letter != by_letter.end() && is_number(found.shape[axis]);
    if (!is_compared) continue;
    const auto& [field, value] = letter->second;
    const std::string given = value ? std::to_string(*value) : "null";
    if (given == found.shape[axis]) continue;
    const std::string name = std::filesystem::path(file).filename().string();
    const std::string manifest = (std::filesystem::path(path_) / MANIFEST).string();
    throw DataError("is " + given + ", but " + name + " has " + described(found), field, manifest);
  }
}

void Bundle::parse(const std::string& manifest) {
  const json info = parse_json<json>(manifest);
  const bool supported = info.at("format") == BUNDLE_FORMAT && info.at("version") == BUNDLE_VERSION;
  const std::string found = info.at("format").dump() + ", " + info.at("version").dump();
  const std::string only = std::string(BUNDLE_FORMAT) + ", " + std::to_string(BUNDLE_VERSION);
  require(supported, "version", "is " + shortened(found, MAX_QUOTED) + ", not " + only + ": export the bundle again");
  for (const auto& [name, graph] : info.at("graphs").items()) {
    graphs_[name] = {ports_of(graph.at("inputs")), ports_of(graph.at("outputs"))};
  }
  const json& model = info.at("model");
  history_ = size_of(model, "history", 1);
  dim_ = size_of(model, "dim", 1);
  if (graphs_.count("decoder") > 0) {
    horizon_ = size_of(model, "horizon", 1);
    modes_ = size_of(model, "modes", 1);
  }
  step_s_ = number_of(model, "step_s");
  require(step_s_ > 0, "step_s", "must be positive");
  features_ = features_of(info.at("scene").at("features"));
  eigenvectors_ = size_of(info.at("scene").at("graph"), "eigenvectors", 0);
  name_ = info.at("name");
  precision_ = info.at("precision");
  licence_ = info.at("licence");
  const json& sizes = info.at("sizes");
  if (!sizes.is_null()) sizes_ = Sizes{size_of(sizes, "A", 1), size_of(sizes, "L", 1)};
  for (const auto& [name, file] : info.at("files").items()) sha256_[name] = file.at("sha256");
}

}  // namespace trajpred::onboard
