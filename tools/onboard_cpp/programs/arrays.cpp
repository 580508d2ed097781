// Writes the inputs of the graphs for every update of a drive, which tests compare with Python.
//
// The graphs do not run: a lane's token is the start of its points, and all futures are zeros. Each update is
// a line of JSON that describes the arrays, followed by their bytes. With --fallback, lane following predicts
// the tracks that the bundle does not; so it does with --facts, which omits the arrays.

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "trajpred_onboard/trajpred_onboard.hpp"

using namespace trajpred::onboard;
using nlohmann::json;

namespace {

constexpr const char* USAGE = "usage: trajpred_arrays BUNDLE DRIVE OUT [--fallback | --facts]";

// Keeps the inputs of the encoder instead of running it.
class RecordingGraphs : public Graphs {
 public:
  RecordingGraphs(const Bundle& bundle, Arrays& recorded)
      : modes_(static_cast<std::int64_t>(bundle.modes())),
        horizon_(static_cast<std::int64_t>(bundle.horizon())),
        dim_(bundle.dim()),
        signatures_(bundle.graphs()),
        recorded_(recorded) {}

  const Signature& signature(const std::string& graph) const override { return signatures_.at(graph); }

  Arrays run(const std::string& graph, const Arrays& values) override {
    Arrays outputs;
    if (graph == "lane_encoder") {
      outputs["lane_token"] = tokens(values);
    } else if (graph == "encoder") {
      recorded_ = values;
      outputs["agent_token"] = zeros({values.at("agent_valid").shape[0], dim()});
      outputs["lane_context"] = zeros({values.at("lane_valid").shape[0], dim()});
    } else {
      recorded_["target"] = values.at("target");
      const std::int64_t rows = values.at("target").shape[0];
      outputs["trajectory"] = zeros({rows, modes_, horizon_, 2});
      outputs["scale"] = zeros({rows, modes_, horizon_, 2});
      outputs["probability"] = zeros({rows, modes_});
      for (float& share : std::get<Floats>(outputs["probability"].values)) share = 1.0f;
    }
    return outputs;
  }

 private:
  static Array zeros(Shape shape) {
    std::size_t size = 1;
    for (const std::int64_t length : shape) size *= static_cast<std::size_t>(length);
    return {std::move(shape), Floats(size, 0.0f)};
  }

  std::int64_t dim() const { return static_cast<std::int64_t>(dim_); }

  // Returns the kind, the intersection flag and the marks of each lane, then the first numbers of its points.
  Array tokens(const Arrays& lanes) const {
    const Array& points = lanes.at("points");
    const Integers& kind = std::get<Integers>(lanes.at("kind").values);
    const Integers& is_intersection = std::get<Integers>(lanes.at("is_intersection").values);
    const Integers& marks = std::get<Integers>(lanes.at("marks").values);
    const Floats& values = std::get<Floats>(points.values);
    const std::size_t width = values.size() / std::max<std::size_t>(kind.size(), 1);
    Array result = zeros({points.shape[0], dim()});
    Floats& tokens = std::get<Floats>(result.values);
    for (std::size_t lane = 0; lane < kind.size(); ++lane) {
      Floats token;
      token.push_back(static_cast<float>(kind[lane]));
      token.push_back(static_cast<float>(is_intersection[lane]));
      token.push_back(static_cast<float>(marks[2 * lane]));
      token.push_back(static_cast<float>(marks[2 * lane + 1]));
      for (std::size_t i = 0; i < width; ++i) token.push_back(values[lane * width + i]);
      for (std::size_t channel = 0; channel < dim_; ++channel) {
        tokens[lane * dim_ + channel] = token[channel % token.size()];
      }
    }
    return result;
  }

  std::int64_t modes_;
  std::int64_t horizon_;
  std::size_t dim_;
  std::map<std::string, Signature> signatures_;
  Arrays& recorded_;
};

template <class Values>
void write_bytes(const Values& values, std::ofstream& out) {
  const auto size = static_cast<std::streamsize>(values.size() * sizeof(values[0]));
  out.write(reinterpret_cast<const char*>(values.data()), size);
}

const char* dtype(const Array& array) {
  constexpr const char* NAMES[] = {"float32", "int64", "bool"};
  return NAMES[array.values.index()];
}

// Writes a description and the arrays.
void write(json line, const Arrays& arrays, std::ofstream& out) {
  line["arrays"] = json::array();
  for (const auto& [name, array] : arrays) {
    line["arrays"].push_back({{"name", name}, {"dtype", dtype(array)}, {"shape", array.shape}});
  }
  out << line.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  for (const auto& [name, array] : arrays) {
    std::visit([&out](const auto& values) { write_bytes(values, out); }, array.values);
  }
}

// Reads a whole scene, as the tests write it.
Scene scene_of(const json& values) {
  Scene scene;
  scene.step_s = values.at("step_s");
  scene.focal = values.at("focal");
  for (const json& track : values.at("tracks")) {
    Track& added = scene.tracks.emplace_back();
    added.track_id = track.at("track_id");
    added.object_type = track.at("object_type");
    added.category = track.at("category");
    for (const json& s : track.at("states")) {
      State& state = added.states.emplace_back();
      if (s.is_null()) continue;
      state = {true, {s[0], s[1]}, s[2], {s[3], s[4]}};
    }
  }
  return scene;
}

// Streams a drive; the result of every update is passed to `write_update`.
template <class Stream, class WriteUpdate>
void stream_drive(Stream& stream, const std::string& path, const WriteUpdate& write_update) {
  DriveFile drive(path);
  while (std::optional<DriveUpdate> update = drive.next()) {
    if (update->map) stream.set_map(std::move(*update->map));
    write_update(*update);
  }
}

void forecast_drive(const Bundle& bundle, const std::string& drive, const std::string& option,
                    std::ofstream& out) {
  Arrays recorded;
  auto graphs = std::make_unique<RecordingGraphs>(bundle, recorded);
  auto runtime = std::make_shared<Forecaster>(bundle, std::move(graphs));
  const Rule fallback = option.empty() ? Rule() : Rule(lane_following);
  StreamingForecaster stream(runtime, {}, EGO_ID, fallback);
  stream_drive(stream, drive, [&](const DriveUpdate& update) {
    recorded.clear();
    const auto forecast = stream.update(update.timestamp_s, update.detections, update.targets);
    json line = json::parse(forecast_line(forecast));
    if (option != "--fallback") line.erase("trajectory");
    line["encoded"] = runtime->lanes().encoded();
    write(line, option == "--facts" ? Arrays() : recorded, out);
  });
}

void encode_drive(const Bundle& bundle, const std::string& drive, std::ofstream& out) {
  Arrays recorded;
  auto graphs = std::make_unique<RecordingGraphs>(bundle, recorded);
  StreamingEncoder stream(std::make_shared<Encoder>(bundle, std::move(graphs)));
  stream_drive(stream, drive, [&](const DriveUpdate& update) {
    recorded.clear();
    const StreamedTokens tokens = stream.update(update.timestamp_s, update.detections);
    json line;
    line["track_id"] = tokens.track_id;
    line["lane_row"] = tokens.lane_row;
    line["not_encoded"] = tokens.not_encoded;
    line["warnings"] = tokens.warnings;
    write(line, recorded, out);
  });
}

// Localises the scenes of a file with one scene and its map per line.
void localise_scenes(const Bundle& bundle, std::ifstream& file, std::ofstream& out) {
  Arrays recorded;
  Encoder encoder(bundle, std::make_unique<RecordingGraphs>(bundle, recorded));
  std::string text;
  while (std::getline(file, text)) {
    const auto values = nlohmann::ordered_json::parse(text);
    Scene scene = scene_of(json::parse(values.at("scene").dump()));
    scene.map = std::make_shared<const LaneMap>(LaneMap::parse(values.at("map").dump()));
    const LocalScene local = encoder.localise(scene);
    write({{"track_id", local.agents.track_id}, {"lane_row", local.lane_row}}, local.inputs, out);
  }
}

bool holds_scenes(const std::string& path) {
  std::ifstream file(path);
  std::string start(10, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start.find("{\"scene\"") == 0;
}

}  // namespace

int main(int count, char** words) try {
  const std::string option = count == 5 ? words[4] : "";
  const bool is_known = option.empty() || option == "--fallback" || option == "--facts";
  if (count < 4 || count > 5 || !is_known) throw DataError(USAGE);
  const Bundle bundle(words[1]);
  const std::string drive = words[2];
  std::ofstream out(words[3], std::ios::binary);
  if (!out) throw DataError("cannot be written", "", words[3]);
  if (holds_scenes(drive)) {
    std::ifstream file(drive);
    localise_scenes(bundle, file, out);
  } else if (bundle.modes() > 0) {
    forecast_drive(bundle, drive, option, out);
  } else {
    encode_drive(bundle, drive, out);
  }
  out.flush();
  if (!out) throw DataError("could not be written completely", "", words[3]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "trajpred_arrays: %s\n", error.what());
  return 2;
}
