// What a vehicle's program may do wrong with the library; prints a line for each.
#include <cstdio>
#include <memory>
#include <string>
#include <trajpred_onboard/onnx.hpp>
#include <trajpred_onboard/trajpred_onboard.hpp>

using namespace trajpred::onboard;

template <class Call>
void print_error(Call call) {
  try {
    call();
    std::puts("no error");
  } catch (const DataError& error) {
    std::puts(error.what());
  }
}

// A runtime of one's own, whose decoder gives half of the steps.
class HalfGraphs : public Graphs {
 public:
  explicit HalfGraphs(const Bundle& bundle) : whole_(open_graphs(bundle)) {}

  const Signature& signature(const std::string& graph) const override { return whole_->signature(graph); }

  Arrays run(const std::string& graph, const Arrays& values) override {
    Arrays outputs = whole_->run(graph, values);
    if (graph == "decoder") outputs.at("trajectory").shape[2] /= 2;
    return outputs;
  }

 private:
  std::unique_ptr<Graphs> whole_;
};

int main() {
  const auto runtime = open_forecaster("bundle");
  const auto map = std::make_shared<const LaneMap>();

  const Rule throws = [](const Scene&, std::size_t) -> Forecast { throw 42; };
  StreamingForecaster stream(runtime, map, EGO_ID, throws);
  Detections crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.track_id.push_back(std::to_string(i));
    crowd.position.push_back({2.0 * i, 0.0});
  }
  std::puts(stream.update(0.0, crowd).warnings.back().c_str());

  StreamingForecaster other(runtime, map);
  std::puts(&stream.map() == &other.map() ? "one map" : "two maps");

  print_error([] { StreamingForecaster none(nullptr); });
  print_error([] { open_forecaster("bundle", -1); });
  print_error([] { open_forecaster("bundle", 1, {"CPUExecutionProvider", "NoneExecutionProvider"}); });

  Scene scene;
  scene.tracks = {{"a", 0, UNSCORED, std::vector<State>(5)}, {"b", 0, UNSCORED, std::vector<State>(9)}};
  print_error([&scene] { lane_following(scene, 60); });

  const Bundle bundle("bundle");
  StreamingForecaster half(std::make_shared<Forecaster>(bundle, std::make_unique<HalfGraphs>(bundle)));
  std::puts(half.update(0.0, Detections{{"a"}, {{0.0, 0.0}}}).warnings.back().c_str());
}
