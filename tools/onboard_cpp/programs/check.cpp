// Runs the graphs of a bundle on its example and compares the outputs with the stored ones: a test of a new
// machine or another build of ONNX Runtime.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trajpred_onboard/onnx.hpp"
#include "trajpred_onboard/trajpred_onboard.hpp"

namespace fs = std::filesystem;
using namespace trajpred::onboard;

namespace {

constexpr const char* USAGE = "usage: trajpred_check BUNDLE [--tolerance 1e-3] [--runs 100] [--threads 1]";
// Largest header and largest array of a .npy file (bytes).
constexpr std::int64_t MAX_ARRAY_BYTES = std::int64_t{1} << 29;

struct Settings {
  std::string bundle;
  double tolerance = 1e-3;
  int runs = 100;
  int threads = 1;
};

// Returns the graphs of a bundle, in order of execution.
std::vector<std::string> graphs_of(const Bundle& bundle) {
  std::vector<std::string> names;
  for (const char* name : {"lane_encoder", "encoder", "decoder"}) {
    if (bundle.graphs().count(name) > 0) names.emplace_back(name);
  }
  return names;
}

// Returns NumPy's notation of a type.
std::string numpy_type(const std::string& dtype) {
  if (dtype == "float32") return "'<f4'";
  if (dtype == "int64") return "'<i8'";
  if (dtype == "bool") return "'|b1'";
  throw DataError("is neither float32 nor int64 nor bool", "dtype");
}

// Reads the numbers of "'shape': (26, 50, 7)" in the header of a .npy file.
Shape npy_shape(const std::string& header) {
  const std::size_t start = header.find('(', header.find("'shape'"));
  const std::size_t end = header.find(')', start);
  if (end == std::string::npos) throw DataError("has no shape");
  Shape shape;
  for (std::size_t i = start + 1; i < end;) {
    const std::size_t comma = std::min(header.find(',', i), end);
    const std::string number = header.substr(i, comma - i);
    const bool is_blank = number.find_first_not_of(' ') == std::string::npos;
    if (!is_blank) shape.push_back(std::stoll(number));
    i = comma + 1;
  }
  return shape;
}

template <class Values>
Array read_values(std::ifstream& file, const Shape& shape) {
  std::int64_t size = 1;
  for (std::int64_t length : shape) {
    const bool fits = length >= 0 && (length == 0 || size <= MAX_ARRAY_BYTES / length);
    if (!fits) throw DataError("is too large");
    size *= length;
  }
  Values values(static_cast<std::size_t>(size));
  const std::size_t bytes = values.size() * sizeof(values[0]);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  if (!file) throw DataError("is too short");
  return {shape, std::move(values)};
}

// Reads an array of the given type from an open .npy file.
Array read_npy(std::ifstream& file, const std::string& dtype) {
  if (!file) throw DataError("cannot be read; was example.npz unpacked?");
  unsigned char start[10] = {};  // magic of 6 bytes, version of 2, length of the header of 2
  file.read(reinterpret_cast<char*>(start), sizeof start);
  const bool is_npy = std::string(start, start + 6) == "\x93NUMPY" && start[6] == 1;
  if (!is_npy) throw DataError("is not a .npy file");
  std::string header(static_cast<std::size_t>(start[8] + 256 * start[9]), ' ');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  const std::string type = numpy_type(dtype);
  const bool same_type = header.find("'descr': " + type) != std::string::npos;
  if (!same_type) throw DataError("is not of type " + type);
  const bool in_order = header.find("'fortran_order': False") != std::string::npos;
  if (!in_order) throw DataError("is not in C order");
  const Shape shape = npy_shape(header);
  if (dtype == "float32") return read_values<Floats>(file, shape);
  if (dtype == "int64") return read_values<Integers>(file, shape);
  return read_values<Flags>(file, shape);
}

// Reads an array of the example. Throws DataError that names the file.
Array example_array(const Bundle& bundle, const std::string& graph, const Port& port) {
  const fs::path path = fs::path(bundle.path()) / "example" / graph / (port.name + ".npy");
  try {
    std::ifstream file(path, std::ios::binary);
    return read_npy(file, port.dtype);
  } catch (const DataError& error) {
    throw error.located(path.string());
  } catch (const std::exception& error) {
    throw DataError(std::string("is damaged (") + error.what() + ")", "", path.string());
  }
}

// Reads the inputs of all graphs, except those that another graph computes.
Arrays read_inputs(const Bundle& bundle) {
  Arrays values;
  std::set<std::string> computed;
  for (const std::string& name : graphs_of(bundle)) {
    const Signature& graph = bundle.graphs().at(name);
    for (const Port& port : graph.inputs) {
      if (computed.count(port.name) > 0) continue;
      values[port.name] = example_array(bundle, name, port);
    }
    for (const Port& port : graph.outputs) computed.insert(port.name);
  }
  return values;
}

// Runs a graph; its outputs are inputs of the next.
void run(Graphs& graphs, const std::string& name, Arrays& values) {
  Arrays outputs = graphs.run(name, values);
  for (auto& [output, array] : outputs) values[output] = std::move(array);
}

// Returns the largest absolute difference; NaN if either side has one.
double largest_difference(const Array& a, const Array& b) {
  if (a.shape != b.shape) throw DataError("an output has another shape than the example's");
  const Floats& x = std::get<Floats>(a.values);
  const Floats& y = std::get<Floats>(b.values);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double apart = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    if (std::isnan(apart)) return apart;
    largest = std::max(largest, apart);
  }
  return largest;
}

// Prints the difference of each output from the stored one; returns whether all are within the tolerance.
bool compare(const Bundle& bundle, const Arrays& values, double tolerance) {
  bool all = true;
  std::printf("%-26s %s\n", "output", "largest difference");
  for (const std::string& name : graphs_of(bundle)) {
    for (const Port& port : bundle.graphs().at(name).outputs) {
      const Array stored = example_array(bundle, name, port);
      const double apart = largest_difference(values.at(port.name), stored);
      const bool within = apart <= tolerance;  // false for NaN
      const std::string output = name + "/" + port.name;
      std::printf("%-26s %.2e%s\n", output.c_str(), apart, within ? "" : "  TOO FAR");
      all = all && within;
    }
  }
  return all;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Prints the median milliseconds of each graph.
void measure(const Bundle& bundle, Graphs& graphs, Arrays& values, int runs) {
  using Clock = std::chrono::steady_clock;
  std::printf("\n%-26s %s\n", "graph", "median ms");
  for (const std::string& name : graphs_of(bundle)) {
    std::vector<double> spent_ms;
    for (int i = 0; i < runs; ++i) {
      const auto start = Clock::now();
      run(graphs, name, values);
      spent_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    std::printf("%-26s %.2f\n", name.c_str(), median(spent_ms));
  }
}

Settings parse(const std::vector<std::string>& words) try {
  Settings settings;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_option = words[i].rfind("--", 0) == 0;
    if (!is_option && settings.bundle.empty()) {
      settings.bundle = words[i];
      continue;
    }
    const std::string value = words.at(i + 1);
    if (words[i] == "--tolerance") settings.tolerance = std::stod(value);
    else if (words[i] == "--runs") settings.runs = std::stoi(value);
    else if (words[i] == "--threads") settings.threads = std::stoi(value);
    else throw DataError(USAGE);
    ++i;
  }
  if (settings.bundle.empty() || settings.runs < 1) throw DataError(USAGE);
  return settings;
} catch (const std::logic_error&) {  // not a number, or a missing value
  throw DataError(USAGE);
}

}  // namespace

int main(int count, char** words) try {
  const Settings settings = parse({words + 1, words + count});
  const Bundle bundle(settings.bundle);
  const auto graphs = open_graphs(bundle, settings.threads);
  Arrays values = read_inputs(bundle);
  for (const std::string& name : graphs_of(bundle)) {
    bundle.require_signature(name, graphs->signature(name));
    run(*graphs, name, values);
  }
  const bool agrees = compare(bundle, values, settings.tolerance);
  measure(bundle, *graphs, values, settings.runs);
  return agrees ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "trajpred_check: %s\n", error.what());
  return 2;
}
