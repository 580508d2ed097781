#include "trajpred_onboard/onnx.hpp"

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

constexpr int MAX_THREADS = 1024;

// One for the whole process, which lives as long as any session.
Ort::Env& environment() {
  static Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "trajpred");
  return env;
}

Ort::SessionOptions options_of(const Bundle& bundle, int threads) {
  require(0 <= threads && threads <= MAX_THREADS, "threads", "must be 0 to " + std::to_string(MAX_THREADS));
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(threads);
  options.SetLogSeverityLevel(ORT_LOGGING_LEVEL_ERROR);
  // With the defaults, two threads on a busy machine take 2 to 3 times as long as one.
  options.AddConfigEntry("session.intra_op.allow_spinning", "0");
  options.AddConfigEntry("session.dynamic_block_base", "4");
  // ONNX Runtime keeps one memory plan per input size, without limit where sizes vary.
  if (!bundle.sizes()) options.DisableMemPattern();
  return options;
}

// Refers to the numbers of `values`, which ONNX Runtime does not change.
template <class Values>
Ort::Value tensor_of(const Values& values, const Shape& shape, ONNXTensorElementDataType type) {
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  auto* data = const_cast<void*>(static_cast<const void*>(values.data()));
  const std::size_t bytes = values.size() * sizeof(values[0]);
  return Ort::Value::CreateTensor(memory, data, bytes, shape.data(), shape.size(), type);
}

Ort::Value tensor_of(const Array& array) {
  if (const auto* floats = std::get_if<Floats>(&array.values)) {
    return tensor_of(*floats, array.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  }
  if (const auto* integers = std::get_if<Integers>(&array.values)) {
    return tensor_of(*integers, array.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
  }
  return tensor_of(std::get<Flags>(array.values), array.shape, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL);
}

Array array_of(const Ort::Value& tensor, const std::string& name) {
  const auto info = tensor.GetTensorTypeAndShapeInfo();
  const bool is_float = info.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  require(is_float, name, "is not float32");
  const float* first = tensor.GetTensorData<float>();
  return {info.GetShape(), Floats(first, first + info.GetElementCount())};
}

// A graph with the names of its inputs and outputs.
struct Graph {
  Ort::Session session;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

Graph load(const Bundle& bundle, const std::string& name, const Ort::SessionOptions& options) {
  const std::string content = bundle.read(name + ".onnx");
  try {
    Graph graph{Ort::Session(environment(), content.data(), content.size(), options), {}, {}};
    const Ort::AllocatorWithDefaultOptions allocator;
    for (std::size_t i = 0; i < graph.session.GetInputCount(); ++i) {
      graph.inputs.emplace_back(graph.session.GetInputNameAllocated(i, allocator).get());
    }
    for (std::size_t i = 0; i < graph.session.GetOutputCount(); ++i) {
      graph.outputs.emplace_back(graph.session.GetOutputNameAllocated(i, allocator).get());
    }
    return graph;
  } catch (const Ort::Exception& error) {
    const std::string reason = on_one_line(error.what());
    throw DataError("ONNX Runtime cannot load graph " + name + " (" + reason + ")", "", bundle.path());
  }
}

class OnnxGraphs : public Graphs {
 public:
  OnnxGraphs(const Bundle& bundle, int threads) {
    const Ort::SessionOptions options = options_of(bundle, threads);
    for (const char* name : {"lane_encoder", "encoder", "decoder"}) {
      const bool exists = bundle.graphs().count(name) > 0;
      if (exists) graphs_.emplace(name, load(bundle, name, options));
    }
  }

  const std::vector<std::string>& inputs(const std::string& graph) const override {
    return graphs_.at(graph).inputs;
  }

  Arrays run(const std::string& name, const Arrays& values) override {
    Graph& graph = graphs_.at(name);
    std::vector<const char*> inputs;
    std::vector<Ort::Value> tensors;
    for (const std::string& input : graph.inputs) {
      const auto array = values.find(input);
      require(array != values.end(), input, "is an input of graph " + name + " that was not computed");
      inputs.push_back(input.c_str());
      tensors.push_back(tensor_of(array->second));
    }
    std::vector<const char*> outputs;
    for (const std::string& output : graph.outputs) outputs.push_back(output.c_str());
    const Ort::RunOptions options;
    const std::vector<Ort::Value> found = graph.session.Run(options, inputs.data(), tensors.data(),
                                                            tensors.size(), outputs.data(), outputs.size());
    Arrays arrays;
    for (std::size_t i = 0; i < found.size(); ++i) {
      arrays[graph.outputs[i]] = array_of(found[i], graph.outputs[i]);
    }
    return arrays;
  }

 private:
  std::map<std::string, Graph> graphs_;
};

}  // namespace

std::unique_ptr<Graphs> open_graphs(const Bundle& bundle, int threads) {
  return std::make_unique<OnnxGraphs>(bundle, threads);
}

std::shared_ptr<Forecaster> open_forecaster(const std::string& bundle, int threads) {
  Bundle opened(bundle);
  auto graphs = open_graphs(opened, threads);
  return std::make_shared<Forecaster>(std::move(opened), std::move(graphs));
}

std::shared_ptr<Encoder> open_encoder(const std::string& bundle, int threads) {
  Bundle opened(bundle);
  auto graphs = open_graphs(opened, threads);
  return std::make_shared<Encoder>(std::move(opened), std::move(graphs));
}

}  // namespace trajpred::onboard
