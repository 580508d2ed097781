#include "trajpred_onboard/bundle.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "files.hpp"
#include "json_text.hpp"
#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

using nlohmann::json;

constexpr const char* MANIFEST = "bundle.json";
// Limits on a file and on the manifest (bytes), against damaged or hostile bundles.
constexpr std::uintmax_t MAX_FILE_BYTES = std::uintmax_t{1} << 29;
constexpr std::uintmax_t MAX_MANIFEST_BYTES = std::uintmax_t{1} << 22;
// Largest integer and largest real number in the description of a model.
constexpr std::int64_t MAX_SIZE = 10'000;
constexpr double MAX_NUMBER = 1e6;

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

// Reads the names of what a model does not read.
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
  // An option that this version does not know would change the features.
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
  name_ = info.at("name");
  precision_ = info.at("precision");
  const json& sizes = info.at("sizes");
  if (!sizes.is_null()) sizes_ = Sizes{size_of(sizes, "A", 1), size_of(sizes, "L", 1)};
  for (const auto& [name, file] : info.at("files").items()) sha256_[name] = file.at("sha256");
}

}  // namespace trajpred::onboard
