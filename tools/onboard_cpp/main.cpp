// Runs the graphs of an onboard bundle with ONNX Runtime and compares the outputs with the bundle's example.
// The code is independent of the model: names, types and shapes come from the graphs.

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

using Values = std::map<std::string, Ort::Value>;  // tensors by name

// In this order; a bundle of the encoder alone has no decoder.
const std::vector<std::string> kGraphs = {"lane_encoder", "encoder", "decoder"};
const char* const kUsage = "usage: onboard BUNDLE [--tolerance 1e-3] [--runs 100] [--threads 1]";

struct Settings {
  fs::path bundle;
  double tolerance = 1e-3;
  int runs = 100;
  int threads = 1;
};

struct Port {
  std::string name;
  ONNXTensorElementDataType type;
};

// One ONNX file with its inputs and outputs.
struct Graph {
  std::string name;
  Ort::Session session;
  std::vector<Port> inputs, outputs;

  Graph(Ort::Env& env, const fs::path& bundle, const std::string& name, const Ort::SessionOptions& options)
      : name(name), session(env, (bundle / (name + ".onnx")).c_str(), options) {
    Ort::AllocatorWithDefaultOptions allocator;
    for (size_t i = 0; i < session.GetInputCount(); ++i)
      inputs.push_back({session.GetInputNameAllocated(i, allocator).get(),
                        session.GetInputTypeInfo(i).GetTensorTypeAndShapeInfo().GetElementType()});
    for (size_t i = 0; i < session.GetOutputCount(); ++i)
      outputs.push_back({session.GetOutputNameAllocated(i, allocator).get(),
                         session.GetOutputTypeInfo(i).GetTensorTypeAndShapeInfo().GetElementType()});
  }

  // Reads the inputs from `values` and stores the outputs there, for the next graph.
  void run(Values& values) {
    Ort::IoBinding binding(session);
    for (const Port& port : inputs) binding.BindInput(port.name.c_str(), values.at(port.name));
    const auto cpu = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    for (const Port& port : outputs) binding.BindOutput(port.name.c_str(), cpu);
    session.Run(Ort::RunOptions(), binding);
    std::vector<Ort::Value> found = binding.GetOutputValues();
    for (size_t i = 0; i < outputs.size(); ++i) values.insert_or_assign(outputs[i].name, std::move(found[i]));
  }
};

// NumPy's notation of a type, and the size of one element in bytes.
std::pair<std::string, size_t> numpy_type(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return {"'<f4'", 4};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return {"'<i8'", 8};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: return {"'|b1'", 1};
    default: throw std::runtime_error("a graph has a tensor that is neither float32 nor int64 nor bool");
  }
}

// The numbers of "'shape': (26, 50, 7)" in the header of a .npy file.
std::vector<int64_t> npy_shape(const std::string& header) {
  const size_t start = header.find('(', header.find("'shape'")), end = header.find(')', start);
  if (end == std::string::npos) throw std::runtime_error("no shape");
  std::vector<int64_t> shape;
  for (size_t i = start + 1; i < end;) {
    const size_t comma = std::min(header.find(',', i), end);
    const std::string number = header.substr(i, comma - i);
    if (number.find_first_not_of(' ') != std::string::npos) shape.push_back(std::stoll(number));
    i = comma + 1;
  }
  return shape;
}

// A tensor of the given type from a .npy file.
Ort::Value read_npy(const fs::path& path, ONNXTensorElementDataType type) try {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot be read; was example.npz unpacked?");
  unsigned char start[10] = {};  // magic of 6 bytes, version of 2, length of the header of 2
  file.read(reinterpret_cast<char*>(start), sizeof start);
  if (std::string(start, start + 6) != "\x93NUMPY" || start[6] != 1)
    throw std::runtime_error("not a .npy file");
  std::string header(start[8] + 256 * start[9], ' ');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));

  const auto [descr, bytes] = numpy_type(type);
  if (header.find("'descr': " + descr) == std::string::npos) throw std::runtime_error("not of type " + descr);
  if (header.find("'fortran_order': False") == std::string::npos) throw std::runtime_error("not in C order");
  const std::vector<int64_t> shape = npy_shape(header);
  Ort::AllocatorWithDefaultOptions allocator;
  Ort::Value value = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), type);
  const size_t size = value.GetTensorTypeAndShapeInfo().GetElementCount() * bytes;
  if (!file.read(static_cast<char*>(value.GetTensorMutableRawData()), static_cast<std::streamsize>(size)))
    throw std::runtime_error("is too short");
  return value;
} catch (const std::exception& error) {
  throw std::runtime_error(path.string() + ": " + error.what());
}

// The largest absolute difference; NaN if either side has one.
double largest_difference(const Ort::Value& a, const Ort::Value& b) {
  const auto info = a.GetTensorTypeAndShapeInfo();
  if (info.GetShape() != b.GetTensorTypeAndShapeInfo().GetShape()) throw std::runtime_error("another shape");
  const float *x = a.GetTensorData<float>(), *y = b.GetTensorData<float>();
  double largest = 0;
  for (size_t i = 0; i < info.GetElementCount(); ++i) {
    const double apart = std::abs(double(x[i]) - double(y[i]));
    if (std::isnan(apart)) return apart;
    largest = std::max(largest, apart);
  }
  return largest;
}

// Reads the inputs of all graphs, except those that another graph computes.
Values read_inputs(const std::vector<Graph>& graphs, const fs::path& example) {
  Values values;
  std::vector<std::string> computed;
  for (const Graph& graph : graphs) {
    for (const Port& port : graph.inputs)
      if (std::find(computed.begin(), computed.end(), port.name) == computed.end())
        values.insert_or_assign(port.name, read_npy(example / graph.name / (port.name + ".npy"), port.type));
    for (const Port& port : graph.outputs) computed.push_back(port.name);
  }
  return values;
}

// Prints the difference of each output from the stored one; returns whether all are within the tolerance.
bool compare(const std::vector<Graph>& graphs, const Values& values, const fs::path& example,
             double tolerance) {
  bool all = true;
  std::printf("%-26s %s\n", "output", "largest difference");
  for (const Graph& graph : graphs)
    for (const Port& port : graph.outputs) {
      const Ort::Value stored = read_npy(example / graph.name / (port.name + ".npy"), port.type);
      const double apart = largest_difference(values.at(port.name), stored);
      const bool within = apart <= tolerance;  // false for NaN
      std::printf("%-26s %.2e%s\n", (graph.name + "/" + port.name).c_str(), apart, within ? "" : "  TOO FAR");
      all = all && within;
    }
  return all;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Prints the median milliseconds of each graph.
void measure(std::vector<Graph>& graphs, Values& values, int runs) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> spent(graphs.size());
  for (int i = 0; i < runs; ++i)
    for (size_t g = 0; g < graphs.size(); ++g) {
      const auto start = Clock::now();
      graphs[g].run(values);
      spent[g].push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
  std::printf("\n%-26s %s\n", "graph", "median ms");
  for (size_t g = 0; g < graphs.size(); ++g)
    std::printf("%-26s %.2f\n", graphs[g].name.c_str(), median(spent[g]));
}

Settings parse(const std::vector<std::string>& words) try {
  Settings settings;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool option = words[i].rfind("--", 0) == 0;
    if (option && i + 1 == words.size()) throw std::invalid_argument(kUsage);
    if (words[i] == "--tolerance") settings.tolerance = std::stod(words[++i]);
    else if (words[i] == "--runs") settings.runs = std::stoi(words[++i]);
    else if (words[i] == "--threads") settings.threads = std::stoi(words[++i]);
    else if (!option && settings.bundle.empty()) settings.bundle = words[i];
    else throw std::invalid_argument(kUsage);
  }
  if (settings.bundle.empty() || settings.runs < 1) throw std::invalid_argument(kUsage);
  return settings;
} catch (const std::logic_error&) {  // not a number, or a missing value
  throw std::invalid_argument(kUsage);
}

int main(int count, char** words) try {
  const Settings settings = parse({words + 1, words + count});
  const fs::path example = settings.bundle / "example";
  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "onboard");
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(settings.threads);
  std::vector<Graph> graphs;
  for (const std::string& name : kGraphs)
    if (name != "decoder" || fs::exists(settings.bundle / "decoder.onnx"))
      graphs.emplace_back(env, settings.bundle, name, options);

  Values values = read_inputs(graphs, example);
  for (Graph& graph : graphs) graph.run(values);
  const bool agrees = compare(graphs, values, example, settings.tolerance);
  measure(graphs, values, settings.runs);
  return agrees ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "onboard: %s\n", error.what());
  return 2;
}
