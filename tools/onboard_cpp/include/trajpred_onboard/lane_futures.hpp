// Six futures per agent, from paths along the lanes and accelerations: trajpred/features/lane_futures.py.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "trajpred_onboard/lane_paths.hpp"

namespace trajpred::onboard {

// Futures of each agent.
inline constexpr std::size_t MODES = 6;
// Accelerations (m/s²) for the next ACCELERATING_S seconds, and their weights.
inline constexpr std::array<double, 6> ACCELERATIONS = {0.0, -1.0, 1.0, -2.0, 2.0, -4.0};
inline constexpr std::array<double, 6> ACCELERATION_WEIGHTS = {0.4, 0.2, 0.2, 0.08, 0.08, 0.04};
inline constexpr double ACCELERATING_S = 3.0;
// Turn rates (rad/s) of paths off the lanes, and their weights beside the lanes' (at most 1).
inline constexpr std::array<double, 3> TURN_RATES = {0.0, 0.15, -0.15};
inline constexpr std::array<double, 3> TURN_WEIGHTS = {0.04, 0.01, 0.01};
// The offset from the centreline fades out over this time at the current speed, or over at least this
// distance.
inline constexpr double FADE_S = 5.0;
inline constexpr double MIN_FADE_M = 20.0;
// Futures that end closer than this (metres) are merged.
inline constexpr double SAME_END_M = 3.0;
// Relative difference up to which the weights of two futures count as equal.
inline constexpr double SAME_WEIGHT = 1e-6;
// Types that do not follow lanes go straight or turn, and change speed less by this factor.
inline constexpr double WALKER_SHARE = 0.25;

// An agent at its last observed pose, in the frame of the map.
struct Mover {
  Pose pose;
  Point velocity;
  int object_type;
  // Seconds since that pose, ascending: the last observed step, then the future steps.
  std::vector<double> time_s;
};

// Six futures, in order of choice: positions at the times of the mover, and probabilities.
struct LaneFutures {
  std::array<Polyline, MODES> path;
  std::array<double, MODES> probability;
};

// Predicts six futures of every agent along lanes, at several speeds.
//
// A future is a path with an acceleration. Paths follow the lanes beside the agent through their successors;
// one more goes straight and two turn, which are the only paths of pedestrians and of agents far from lanes.
// The most probable future is chosen, futures that end nearby add to its probability, and so on. Until the
// first time, the speed is constant.
std::vector<LaneFutures> lane_futures(const Routes& lanes, const std::vector<Mover>& agents);

}  // namespace trajpred::onboard
