#include "trajpred_onboard/lane_futures.hpp"

#include <algorithm>
#include <cstring>

#include "trajpred_onboard/scenario.hpp"

namespace trajpred::onboard {

namespace {

constexpr std::size_t CHANGES = ACCELERATIONS.size();

// Returns whether an object type follows lanes.
bool drives(int object_type) {
  static constexpr std::array<const char*, 5> DRIVERS = {"vehicle", "motorcyclist", "cyclist", "bus",
                                                         "unknown"};
  for (const char* name : DRIVERS) {
    if (std::strcmp(OBJECT_TYPES[static_cast<std::size_t>(object_type)], name) == 0) return true;
  }
  return false;
}

// Metres travelled with each acceleration, at each time.
using Distances = std::array<std::vector<double>, CHANGES>;

// Computes the metres travelled; agents that brake to a standstill stay there.
Distances distances(double speed, double share, const std::vector<double>& time_s) {
  Distances metres;
  const double first_s = time_s[0];
  for (std::size_t change = 0; change < CHANGES; ++change) {
    const double a = share * ACCELERATIONS[change];
    const double until_standing = speed / std::max(-a, 1e-9);
    const double duration = a < 0 ? std::min(until_standing, ACCELERATING_S) : ACCELERATING_S;
    metres[change].reserve(time_s.size());
    for (double time : time_s) {
      const double elapsed = time - first_s;
      const double changing = std::min(elapsed, duration);
      // The mean speed is the speed in the middle of the change.
      const double while_changing = (speed + a * changing / 2) * changing;
      const double after = (speed + a * changing) * (elapsed - changing);
      metres[change].push_back(speed * first_s + (while_changing + after));
    }
  }
  return metres;
}

double largest(const Distances& metres) {
  double result = metres[0][0];
  for (const std::vector<double>& row : metres) {
    result = std::max(result, *std::max_element(row.begin(), row.end()));
  }
  return result;
}

// Appends the paths that turn at TURN_RATES at the current speed.
void add_steady_paths(const Pose& pose, double speed, double reach_m, std::vector<Path>& paths) {
  const Point ahead = unit_vector(pose.heading);
  for (std::size_t turn = 0; turn < TURN_RATES.size(); ++turn) {
    // Below 1 m/s, a fixed turn rate would be a turn on the spot.
    const double curvature = TURN_RATES[turn] / std::max(speed, 1.0);
    Path path;
    path.weight = TURN_WEIGHTS[turn];
    for (std::size_t i = 0; i < POINTS; ++i) {
      path.curve[i] = pose.position + arc(ahead, curvature, reach_m * share_of(i, POINTS));
    }
    paths.push_back(path);
  }
}

// Returns the point at `distance` along a path of `reach_m` metres.
Point position_on(const Path& path, double distance, double reach_m) {
  const double exact = static_cast<double>(POINTS - 1) * distance / reach_m;
  const double at = std::clamp(exact, 0.0, static_cast<double>(POINTS - 1));
  const auto before = std::min(static_cast<std::size_t>(at), POINTS - 2);
  const Point start = path.curve[before];
  return start + (at - static_cast<double>(before)) * (path.curve[before + 1] - start);
}

// Returns the row of the largest weight; ties go to the first.
std::size_t heaviest(const std::vector<double>& weight) {
  // Branches that part beyond the horizon have equal weights: take the first, not the one rounded up.
  const double least = (1 - SAME_WEIGHT) * *std::max_element(weight.begin(), weight.end());
  const auto is_heavy = [least](double value) { return value >= least; };
  const auto first = std::find_if(weight.begin(), weight.end(), is_heavy);
  return first == weight.end() ? 0 : static_cast<std::size_t>(first - weight.begin());
}

// The most probable futures, as indices of pairs of path and acceleration.
struct Choice {
  std::array<std::size_t, MODES> chosen;
  std::array<double, MODES> probability;
};

// Chooses the most probable futures that end apart.
//
// If there are fewer than MODES such futures, the most probable others follow with negligible probability.
Choice choose(const Polyline& end, std::vector<double> weight, double same_end_m) {
  Choice choice;
  double total = 0.0;
  for (std::size_t mode = 0; mode < MODES; ++mode) {
    const std::size_t best = heaviest(weight);
    double covered = 0.0;
    for (std::size_t i = 0; i < end.size(); ++i) {
      const bool is_apart = norm(end[i] - end[best]) >= same_end_m;
      if (is_apart) continue;
      covered += weight[i];
      weight[i] *= 1e-6;
    }
    weight[best] = 0.0;
    choice.chosen[mode] = best;
    choice.probability[mode] = covered;
    total += covered;
  }
  for (double& probability : choice.probability) probability /= total;
  return choice;
}

// Chooses among the paths of an agent, each with every acceleration.
LaneFutures futures_on(const std::vector<Path>& paths, const Distances& metres, double reach_m,
                       double same_end_m) {
  Polyline end;
  std::vector<double> weight;
  end.reserve(paths.size() * CHANGES);
  weight.reserve(paths.size() * CHANGES);
  for (const Path& path : paths) {
    for (std::size_t change = 0; change < CHANGES; ++change) {
      end.push_back(position_on(path, metres[change].back(), reach_m));
      weight.push_back(path.weight * ACCELERATION_WEIGHTS[change]);
    }
  }
  const Choice choice = choose(end, weight, same_end_m);
  LaneFutures futures;
  futures.probability = choice.probability;
  for (std::size_t mode = 0; mode < MODES; ++mode) {
    const Path& path = paths[choice.chosen[mode] / CHANGES];
    const std::vector<double>& travelled = metres[choice.chosen[mode] % CHANGES];
    futures.path[mode].reserve(travelled.size());
    for (double distance : travelled) {
      futures.path[mode].push_back(position_on(path, distance, reach_m));
    }
  }
  return futures;
}

}  // namespace

std::vector<LaneFutures> lane_futures(const Routes& lanes, const std::vector<Mover>& agents) {
  std::vector<Distances> metres;
  std::vector<Traveller> travellers;
  std::vector<Traveller> drivers;
  for (const Mover& agent : agents) {
    const double speed = norm(agent.velocity);
    const double share = drives(agent.object_type) ? 1.0 : WALKER_SHARE;
    const double course = speed > STANDING_SPEED ? direction(agent.velocity) : agent.pose.heading;
    metres.push_back(distances(speed, share, agent.time_s));
    const Pose pose{agent.pose.position, course};
    travellers.push_back({pose, largest(metres.back()), std::max(FADE_S * speed, MIN_FADE_M)});
    if (drives(agent.object_type)) drivers.push_back(travellers.back());
  }
  std::vector<std::vector<Path>> along_lanes = lane_paths(lanes, drivers);
  std::vector<LaneFutures> futures;
  std::size_t driver = 0;
  for (std::size_t i = 0; i < agents.size(); ++i) {
    const bool is_driver = drives(agents[i].object_type);
    std::vector<Path> paths;
    if (is_driver) paths = std::move(along_lanes[driver++]);
    const Traveller& traveller = travellers[i];
    add_steady_paths(traveller.pose, norm(agents[i].velocity), traveller.reach_m, paths);
    const double same_end_m = SAME_END_M * (is_driver ? 1.0 : WALKER_SHARE);
    futures.push_back(futures_on(paths, metres[i], traveller.reach_m, same_end_m));
  }
  return futures;
}

}  // namespace trajpred::onboard
