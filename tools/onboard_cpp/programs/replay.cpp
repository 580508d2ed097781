// Streams a recorded drive through a bundle, as a vehicle would, and writes the forecasts.
//
// If the drive contains forecasts by Python's runtime, it prints the largest differences from these.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "trajpred_onboard/onnx.hpp"
#include "trajpred_onboard/trajpred_onboard.hpp"

using namespace trajpred::onboard;

namespace {
// Calls of `operator new` so far in all threads, including onnxruntime's.
std::atomic<std::size_t> allocations{0};
}  // namespace

// All other forms of `new` and `delete` end in these.
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

constexpr const char* USAGE =
    "usage: trajpred_replay BUNDLE DRIVE.jsonl [--map lanes.json] [--out forecasts.jsonl] [--threads 1] "
    "[--fallback 1] [--tolerance 1e-3]";

struct Settings {
  std::string bundle;
  std::string drive;
  std::string map;
  std::string out;
  int threads = 1;
  bool fallback = false;
  double tolerance = 1e-3;  // metres, and of probabilities
};

Settings parse(const std::vector<std::string>& words) try {
  Settings settings;
  settings.bundle = words.at(0);
  settings.drive = words.at(1);
  for (std::size_t i = 2; i < words.size(); i += 2) {
    const std::string value = words.at(i + 1);
    if (words[i] == "--map") settings.map = value;
    else if (words[i] == "--out") settings.out = value;
    else if (words[i] == "--threads") settings.threads = std::stoi(value);
    else if (words[i] == "--fallback") settings.fallback = std::stoi(value) != 0;
    else if (words[i] == "--tolerance") settings.tolerance = std::stod(value);
    else throw DataError(USAGE);
  }
  return settings;
} catch (const std::logic_error&) {  // not a number, or a missing value
  throw DataError(USAGE);
}

// Largest differences between forecasts.
struct Difference {
  double distance_m = 0.0;
  double probability = 0.0;

  bool is_within(double tolerance) const { return distance_m <= tolerance && probability <= tolerance; }
};

// Statistics over all updates.
struct Statistics {
  std::vector<double> latency_ms;
  std::vector<double> cpu_ms;  // of all threads
  std::vector<double> allocations;
  std::map<std::string, std::vector<double>> stage_ms;
  std::map<std::string, std::size_t> warnings;
  std::size_t agents = 0;
  // Of the agents.
  std::size_t fallback = 0;
  std::size_t compared = 0;
  Difference largest;
};

// Raises `largest` to `value`; to infinity if that is not a number.
void enlarge(double& largest, double value) {
  if (!(value <= largest)) largest = std::isnan(value) ? INFINITY : value;
}

// Includes the differences of two forecasts in `largest`; infinite if they differ in tracks or sizes.
void compare(const Forecast& found, const Forecast& expected, Difference& largest) {
  const bool same_tracks = found.track_id == expected.track_id;
  const bool same_positions = found.trajectory.size() == expected.trajectory.size();
  const bool same_modes = found.probability.size() == expected.probability.size();
  if (!same_tracks || !same_positions || !same_modes) {
    largest = {INFINITY, INFINITY};
    return;
  }
  for (std::size_t i = 0; i < found.trajectory.size(); ++i) {
    enlarge(largest.distance_m, norm(found.trajectory[i] - expected.trajectory[i]));
  }
  for (std::size_t i = 0; i < found.probability.size(); ++i) {
    enlarge(largest.probability, std::abs(found.probability[i] - expected.probability[i]));
  }
}

double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double place = percent / 100 * static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(std::lround(place))];
}

// Returns the values of all updates but the first, which sets the map.
std::vector<double> without_first(const std::vector<double>& values) {
  return {values.begin() + (values.size() > 1 ? 1 : 0), values.end()};
}

// Returns the peak of resident memory in MB; 0 where it is unknown (outside Linux).
double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0.0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes / 1e3;
  }
  return 0.0;
}

bool is_failure(const std::pair<const std::string, std::size_t>& warning) {
  return warning.first.rfind("forecast failed", 0) == 0;
}

// Returns whether the bundle failed and predicted nothing in any update.
bool only_failed(const Statistics& statistics) {
  const auto& warnings = statistics.warnings;
  const bool failed = std::any_of(warnings.begin(), warnings.end(), is_failure);
  return failed && statistics.agents == statistics.fallback;
}

void print(const Statistics& statistics, double tolerance) {
  const std::vector<double>& latency = statistics.latency_ms;
  std::printf("updates                    %zu\n", latency.size());
  if (latency.empty()) return;
  std::printf("agents predicted           %zu\n", statistics.agents);
  std::printf("first update, ms           %.2f\n", latency[0]);
  const std::vector<double> warm = without_first(latency);
  std::printf("latency p50, p95, ms       %.2f %.2f\n", percentile(warm, 50), percentile(warm, 95));
  const std::vector<double> cpu = without_first(statistics.cpu_ms);
  std::printf("CPU time p50, p99, ms      %.2f %.2f\n", percentile(cpu, 50), percentile(cpu, 99));
  std::printf("allocations p50            %.0f\n", percentile(without_first(statistics.allocations), 50));
  std::printf("peak memory, MB            %.1f\n", peak_mb());
  for (const auto& [stage, spent_ms] : statistics.stage_ms) {
    const double p50 = percentile(spent_ms, 50);
    const double p95 = percentile(spent_ms, 95);
    std::printf("  %-24s %.2f %.2f\n", stage.c_str(), p50, p95);
  }
  for (const auto& [warning, times] : statistics.warnings) {
    std::printf("%zu times: %s\n", times, warning.c_str());
  }
  if (only_failed(statistics)) std::printf("every forecast of the bundle FAILED\n");
  if (statistics.compared == 0) return;
  const Difference& largest = statistics.largest;
  const char* result = largest.is_within(tolerance) ? "" : "  TOO FAR";
  std::printf("largest distance, m        %.2e in %zu updates%s\n", largest.distance_m, statistics.compared,
              result);
  std::printf("of probabilities           %.2e\n", largest.probability);
}

void add(const OnboardForecast& forecast, const DriveUpdate& update, double latency_ms,
         Statistics& statistics) {
  statistics.latency_ms.push_back(latency_ms);
  statistics.agents += forecast.size();
  statistics.fallback += forecast.fallback.size();
  for (const auto& [stage, spent_ms] : forecast.stage_ms) statistics.stage_ms[stage].push_back(spent_ms);
  for (const std::string& warning : forecast.warnings) ++statistics.warnings[warning];
  if (!update.forecast) return;
  ++statistics.compared;
  compare(forecast, *update.forecast, statistics.largest);
}

Statistics replay(const Settings& settings, std::ofstream* out) {
  using Clock = std::chrono::steady_clock;
  DriveFile drive(settings.drive);
  LaneMap map;
  if (!settings.map.empty()) map = LaneMap::load(settings.map);
  const Rule fallback = settings.fallback ? Rule(lane_following) : Rule();
  StreamingForecaster stream(open_forecaster(settings.bundle, settings.threads), std::move(map), EGO_ID,
                             fallback);
  Statistics statistics;
  while (std::optional<DriveUpdate> update = drive.next()) {
    const auto start = Clock::now();
    const std::clock_t cpu_start = std::clock();
    const std::size_t allocated_before = allocations;
    if (update->map) stream.set_map(std::move(*update->map));
    const OnboardForecast forecast = stream.update(update->timestamp_s, update->detections, update->targets);
    const double latency_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    statistics.cpu_ms.push_back(1e3 * static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
    statistics.allocations.push_back(static_cast<double>(allocations - allocated_before));
    add(forecast, *update, latency_ms, statistics);
    if (out != nullptr) *out << forecast_line(forecast) << '\n';
  }
  return statistics;
}

}  // namespace

int main(int count, char** words) try {
  const Settings settings = parse({words + 1, words + count});
  std::ofstream out;
  const bool writes = !settings.out.empty();
  if (writes) out.open(settings.out, std::ios::binary);
  if (writes && !out) throw DataError("cannot be written", "", settings.out);
  const Statistics statistics = replay(settings, writes ? &out : nullptr);
  if (writes && !out.flush()) throw DataError("could not be written completely", "", settings.out);
  print(statistics, settings.tolerance);
  const bool agrees = statistics.largest.is_within(settings.tolerance);
  return agrees && !only_failed(statistics) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "trajpred_replay: %s\n", error.what());
  return 2;
}
