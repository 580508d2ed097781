#include "trajpred_onboard/onnx.hpp"

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
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

// Adds a provider by ONNX Runtime's name; NVIDIA's providers have their own option types.
void add_provider(Ort::SessionOptions& options, const std::string& provider) {
  const OrtApi& api = Ort::GetApi();
  if (provider == "CPUExecutionProvider") return;  // which every session has, as its last one
  if (provider == "CUDAExecutionProvider") {
    OrtCUDAProviderOptionsV2* defaults = nullptr;
    Ort::ThrowOnError(api.CreateCUDAProviderOptions(&defaults));
    const std::unique_ptr<OrtCUDAProviderOptionsV2, decltype(api.ReleaseCUDAProviderOptions)> owned(
        defaults, api.ReleaseCUDAProviderOptions);
    options.AppendExecutionProvider_CUDA_V2(*defaults);
    return;
  }
  if (provider == "TensorrtExecutionProvider") {
    OrtTensorRTProviderOptionsV2* defaults = nullptr;
    Ort::ThrowOnError(api.CreateTensorRTProviderOptions(&defaults));
    const std::unique_ptr<OrtTensorRTProviderOptionsV2, decltype(api.ReleaseTensorRTProviderOptions)> owned(
        defaults, api.ReleaseTensorRTProviderOptions);
    options.AppendExecutionProvider_TensorRT_V2(*defaults);
    return;
  }
  const std::string suffix = "ExecutionProvider";  // "QNNExecutionProvider" is added as "QNN"
  options.AppendExecutionProvider(provider.substr(0, provider.size() - suffix.size()));
}

void add_providers(Ort::SessionOptions& options, const Providers& providers) {
  const std::vector<std::string> available = Ort::GetAvailableProviders();
  const std::string names = joined_names(available);
  for (const std::string& provider : providers) {
    const bool exists = std::count(available.begin(), available.end(), provider) > 0;
    require(exists, "providers", provider + " is not in this ONNX Runtime, which has " + names);
    try {
      add_provider(options, provider);
    } catch (const Ort::Exception& error) {
      throw DataError(provider + " cannot be used (" + on_one_line(error.what()) + ")", "providers");
    }
  }
}

Ort::SessionOptions options_of(const Bundle& bundle, int threads, const Providers& providers) {
  require(0 <= threads && threads <= MAX_THREADS, "threads", "must be 0 to " + std::to_string(MAX_THREADS));
  Ort::SessionOptions options;
  add_providers(options, providers);
  options.SetIntraOpNumThreads(threads);
  options.SetLogSeverityLevel(ORT_LOGGING_LEVEL_ERROR);
  // With the defaults, two threads on a busy machine take 2 to 3 times as long as one.
  options.AddConfigEntry("session.intra_op.allow_spinning", "0");
  options.AddConfigEntry("session.dynamic_block_base", "4");
  // ONNX Runtime keeps one memory plan per input size, without limit if sizes vary.
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

std::string dtype_of(ONNXTensorElementDataType type) {
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) return "float32";
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64) return "int64";
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL) return "bool";
  return "type " + std::to_string(type) + " of ONNX";
}

Port port_of(const std::string& name, const Ort::TypeInfo& type) {
  require(type.GetONNXType() == ONNX_TYPE_TENSOR, name, "is no tensor");
  const auto info = type.GetTensorTypeAndShapeInfo();
  Port port{name, dtype_of(info.GetElementType()), {}};
  for (const std::int64_t size : info.GetShape()) {
    port.shape.push_back(size < 0 ? "?" : std::to_string(size));
  }
  return port;
}

// A graph with its inputs and outputs.
struct Graph {
  Ort::Session session;
  Signature signature;
};

Graph load(const Bundle& bundle, const std::string& name, const Ort::SessionOptions& options) {
  const std::string content = bundle.read(name + ".onnx");
  try {
    Graph graph{Ort::Session(environment(), content.data(), content.size(), options), {}};
    Ort::Session& session = graph.session;
    const Ort::AllocatorWithDefaultOptions allocator;
    for (std::size_t i = 0; i < session.GetInputCount(); ++i) {
      const auto input = session.GetInputNameAllocated(i, allocator);
      graph.signature.inputs.push_back(port_of(input.get(), session.GetInputTypeInfo(i)));
    }
    for (std::size_t i = 0; i < session.GetOutputCount(); ++i) {
      const auto output = session.GetOutputNameAllocated(i, allocator);
      graph.signature.outputs.push_back(port_of(output.get(), session.GetOutputTypeInfo(i)));
    }
    return graph;
  } catch (const Ort::Exception& error) {
    const std::string reason = on_one_line(error.what());
    throw DataError("ONNX Runtime cannot load graph " + name + " (" + reason + ")", "", bundle.path());
  }
}

class OnnxGraphs : public Graphs {
 public:
  OnnxGraphs(const Bundle& bundle, int threads, const Providers& providers) {
    const Ort::SessionOptions options = options_of(bundle, threads, providers);
    for (const char* name : {"lane_encoder", "encoder", "decoder"}) {
      const bool exists = bundle.graphs().count(name) > 0;
      if (exists) graphs_.emplace(name, load(bundle, name, options));
    }
  }

  const Signature& signature(const std::string& graph) const override { return graphs_.at(graph).signature; }

  Arrays run(const std::string& name, const Arrays& values) override {
    Graph& graph = graphs_.at(name);
    std::vector<const char*> inputs;
    std::vector<Ort::Value> tensors;
    for (const Port& input : graph.signature.inputs) {
      const auto array = values.find(input.name);
      require(array != values.end(), input.name, "is an input of graph " + name + " that was not computed");
      inputs.push_back(input.name.c_str());
      tensors.push_back(tensor_of(array->second));
    }
    std::vector<const char*> outputs;
    for (const Port& output : graph.signature.outputs) outputs.push_back(output.name.c_str());
    const Ort::RunOptions options;
    const std::vector<Ort::Value> found = graph.session.Run(options, inputs.data(), tensors.data(),
                                                            tensors.size(), outputs.data(), outputs.size());
    Arrays arrays;
    for (std::size_t i = 0; i < found.size(); ++i) {
      arrays[outputs[i]] = array_of(found[i], outputs[i]);
    }
    return arrays;
  }

 private:
  std::map<std::string, Graph> graphs_;
};

}  // namespace

std::unique_ptr<Graphs> open_graphs(const Bundle& bundle, int threads, const Providers& providers) {
  return std::make_unique<OnnxGraphs>(bundle, threads, providers);
}

std::shared_ptr<Forecaster> open_forecaster(const std::string& bundle, int threads,
                                            const Providers& providers) {
  Bundle opened(bundle);
  auto graphs = open_graphs(opened, threads, providers);
  return std::make_shared<Forecaster>(std::move(opened), std::move(graphs));
}

std::shared_ptr<Encoder> open_encoder(const std::string& bundle, int threads, const Providers& providers) {
  Bundle opened(bundle);
  auto graphs = open_graphs(opened, threads, providers);
  return std::make_shared<Encoder>(std::move(opened), std::move(graphs));
}

}  // namespace trajpred::onboard
