#include "trajpred_onboard/lane_paths.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace trajpred::onboard {

namespace {

// A lane beside an agent.
struct Match {
  std::size_t lane;
  double along_m;
  double weight;
  // Number of the first match with a lane that leaves the same fork.
  std::size_t group = 0;
};

// A path before it is weighted against the others of its group.
struct Branch {
  Path path;
  std::size_t group;
  // Half the square of its turn since the fork, in standard deviations.
  double exponent;
};

// The best segment of a lane for an agent.
struct Candidate {
  std::size_t lane;
  double along_m;
  double cost;
};

// Several lanes, one after another, as one polyline.
struct Joined {
  Polyline line;
  std::vector<double> arc;
};

// Returns the metres from a position to the box around a lane.
double gap_to_box(Point position, const Route& route) {
  const double x = std::max({route.low.x - position.x, position.x - route.high.x, 0.0});
  const double y = std::max({route.low.y - position.y, position.y - route.high.y, 0.0});
  return norm({x, y});
}

// The lanes that paths can touch, since the map may cover a city.
class WithinReach {
 public:
  WithinReach(const Routes& lanes, const std::vector<Traveller>& agents)
      : lanes_(lanes), agents_(agents), answers_(lanes.routes.size(), UNKNOWN) {}

  bool operator()(std::size_t lane) {
    if (answers_[lane] == UNKNOWN) answers_[lane] = any_reaches(lanes_.routes[lane]) ? YES : NO;
    return answers_[lane] == YES;
  }

 private:
  enum Answer : char { UNKNOWN, YES, NO };

  bool any_reaches(const Route& route) const {
    for (const Traveller& agent : agents_) {
      const double gap = gap_to_box(agent.pose.position, route);
      if (gap <= agent.reach_m + MATCH_RADIUS_M) return true;
    }
    return false;
  }

  const Routes& lanes_;
  const std::vector<Traveller>& agents_;
  std::vector<Answer> answers_;
};

// The point of a segment nearest to a position.
struct Nearest {
  double share;
  double gap_m;
};

Nearest nearest_on(const Segment& segment, Point position) {
  const Point to_agent = position - segment.start;
  const double projected = to_agent.x * segment.step.x + to_agent.y * segment.step.y;
  const double share = std::clamp(projected / (segment.size_m * segment.size_m), 0.0, 1.0);
  return {share, norm(to_agent - share * segment.step)};
}

// Finds the segment of a lane that fits a pose best; returns false if none is near.
bool find_best_segment(const Route& route, const Pose& pose, Candidate& best) {
  bool is_near = false;
  for (const Segment& segment : route.segments) {
    const Nearest nearest = nearest_on(segment, pose.position);
    if (nearest.gap_m > MATCH_RADIUS_M) continue;
    const double angle = wrap_angle(pose.heading - segment.heading);
    if (std::abs(angle) > MATCH_ANGLE) continue;
    const double offset_cost = (nearest.gap_m / OFFSET_SD_M) * (nearest.gap_m / OFFSET_SD_M);
    const double angle_cost = (angle / ANGLE_SD) * (angle / ANGLE_SD);
    const double cost = offset_cost + angle_cost;
    if (is_near && cost >= best.cost) continue;
    is_near = true;
    best.cost = cost;
    best.along_m = segment.along_m + nearest.share * segment.size_m;
  }
  return is_near;
}

// Returns whether a lane's box is near. Most are too far and cost only one comparison.
bool is_box_near(Point position, const Route& route) {
  if (route.low.x - position.x > MATCH_RADIUS_M) return false;
  if (position.x - route.high.x > MATCH_RADIUS_M) return false;
  return gap_to_box(position, route) <= MATCH_RADIUS_M;
}

// Matches an agent with the best lanes, in the order of the map.
std::vector<Match> match(const Routes& lanes, const Pose& pose) {
  std::vector<Candidate> candidates;
  for (std::size_t lane = 0; lane < lanes.routes.size(); ++lane) {
    const Route& route = lanes.routes[lane];
    if (!is_box_near(pose.position, route)) continue;
    Candidate candidate{lane, 0.0, 0.0};
    if (find_best_segment(route, pose, candidate)) candidates.push_back(candidate);
  }
  Rows rows(candidates.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  const auto cheaper = [&candidates](std::size_t a, std::size_t b) {
    return candidates[a].cost < candidates[b].cost;
  };
  std::vector<Match> matches;
  for (std::size_t row : smallest(rows, MAX_LANES, cheaper)) {
    const Candidate& candidate = candidates[row];
    matches.push_back({candidate.lane, candidate.along_m, std::exp(-0.5 * candidate.cost)});
  }
  return matches;
}

// Groups matches: lanes that leave one fork form a group, and any other lane is its own group.
void group(const Routes& lanes, std::vector<Match>& matches) {
  for (std::size_t i = 0; i < matches.size(); ++i) {
    const std::size_t fork = lanes.routes[matches[i].lane].fork;
    std::size_t first = fork == NO_ROW ? i : 0;
    while (first < i && lanes.routes[matches[first].lane].fork != fork) ++first;
    matches[i].group = first;
  }
}

bool is_alone(const std::vector<Match>& matches, const Match& match) {
  const auto is_same = [&match](const Match& other) { return other.group == match.group; };
  return std::count_if(matches.begin(), matches.end(), is_same) == 1;
}

// Returns the first chains of lanes of `reach_m` metres from `lane`, depth first and without loops.
std::vector<Rows> walk(std::size_t lane, double reach_m, const Routes& lanes, WithinReach& within_reach) {
  struct Unfinished {
    Rows chain;
    double left_m;
  };
  std::vector<Rows> chains;
  std::vector<Unfinished> stack{{{lane}, reach_m - lanes.routes[lane].arc.back()}};
  while (!stack.empty() && chains.size() < MAX_PATHS) {
    Unfinished current = std::move(stack.back());
    stack.pop_back();
    Rows onward;
    if (current.left_m > 0) {
      for (std::size_t next : lanes.routes[current.chain.back()].following) {
        const bool visited = std::count(current.chain.begin(), current.chain.end(), next) > 0;
        if (!visited && within_reach(next)) onward.push_back(next);
      }
    }
    if (onward.empty()) chains.push_back(current.chain);
    for (auto next = onward.rbegin(); next != onward.rend(); ++next) {
      Unfinished longer{current.chain, current.left_m - lanes.routes[*next].arc.back()};
      longer.chain.push_back(*next);
      stack.push_back(std::move(longer));
    }
  }
  return chains;
}

// Returns the metres that all chains have in common from their start.
double common_length(const Routes& lanes, const std::vector<Rows>& chains) {
  double common_m = 0.0;
  for (std::size_t i = 0; i < chains[0].size(); ++i) {
    const std::size_t lane = chains[0][i];
    for (const Rows& chain : chains) {
      if (i >= chain.size() || chain[i] != lane) return common_m;
    }
    common_m += lanes.routes[lane].arc.back();
  }
  return common_m;
}

// Joins the centrelines of a chain to one polyline.
void join(const Routes& lanes, const Rows& chain, Joined& joined) {
  joined.line.clear();
  for (std::size_t lane : chain) {
    const Polyline& centerline = *lanes.routes[lane].centerline;
    joined.line.insert(joined.line.end(), centerline.begin(), centerline.end());
  }
  joined.arc.assign(joined.line.size(), 0.0);
  for (std::size_t i = 1; i < joined.line.size(); ++i) {
    joined.arc[i] = joined.arc[i - 1] + norm(joined.line[i] - joined.line[i - 1]);
  }
}

// Computes the points of a polyline at `distance`, extended straight.
std::array<Point, POINTS> points_along(const Point* line, const double* arc, std::size_t size,
                                       const std::array<double, POINTS>& distance) {
  const double length = arc[size - 1];
  Interpolation point_at(line, arc, size);
  std::array<Point, POINTS> points;
  for (std::size_t i = 0; i < POINTS; ++i) points[i] = point_at(std::min(distance[i], length));
  if (distance.back() <= length) return points;
  // Straight on in the direction of the last metre: the last two points may coincide.
  Point ahead = line[size - 1] - point_at(std::max(length - 1, 0.0));
  ahead = (1 / std::max(norm(ahead), 1e-9)) * ahead;
  for (std::size_t i = 0; i < POINTS; ++i) {
    const double beyond = distance[i] - std::min(distance[i], length);
    points[i] = points[i] + beyond * ahead;
  }
  return points;
}

// Returns the direction of a curve at its point `i`, as a vector.
Point gradient(const std::array<Point, POINTS>& curve, std::size_t i) {
  if (i == 0) return curve[1] - curve[0];
  if (i + 1 == POINTS) return curve[i] - curve[i - 1];
  return 0.5 * (curve[i + 1] - curve[i - 1]);
}

// Returns the vector of length 1 in the direction of `vector`; (1, 0) for the zero vector.
Point unit(Point vector) {
  const double length = norm(vector);
  if (length == 0.0) return {1.0, 0.0};
  return (1 / length) * vector;
}

// Returns the point of a path at its `share`, 0 to 1.
std::size_t point_at_share(double share) {
  const double last = static_cast<double>(POINTS - 1);
  return static_cast<std::size_t>(std::clamp(std::nearbyint(share * last), 0.0, last));
}

// Follows a chain of lanes from the agent's position, with a fork after `fork_m` metres.
Branch follow(const Joined& lanes, const Traveller& agent, const Match& start, double fork_m) {
  std::array<double, POINTS> distance;
  std::array<double, POINTS> along;
  for (std::size_t i = 0; i < POINTS; ++i) {
    distance[i] = agent.reach_m * share_of(i, POINTS);
    along[i] = start.along_m + distance[i];
  }
  const auto center = points_along(lanes.line.data(), lanes.arc.data(), lanes.line.size(), along);
  const double first_heading = direction(gradient(center, 0));
  const Point offset = Rotation(-first_heading)(agent.pose.position - center[0]);
  std::array<Point, POINTS> curve;
  for (std::size_t i = 0; i < POINTS; ++i) {
    const double x = std::clamp(1 - distance[i] / agent.fade_m, 0.0, 1.0);
    const double kept = x * x * (3 - 2 * x);  // from 1 to 0, level at both ends
    const Point shift = kept * offset;
    const Point ahead = unit(gradient(center, i));
    curve[i].x = center[i].x + shift.x * ahead.x - shift.y * ahead.y;
    curve[i].y = center[i].y + shift.x * ahead.y + shift.y * ahead.x;
  }
  std::array<double, POINTS> arc;
  arc[0] = 0.0;
  for (std::size_t i = 1; i < POINTS; ++i) arc[i] = arc[i - 1] + norm(curve[i] - curve[i - 1]);
  const double fork_heading = direction(gradient(center, point_at_share(fork_m / agent.reach_m)));
  const double last_heading = direction(gradient(center, POINTS - 1));
  const double turn = wrap_angle(last_heading - fork_heading) / TURN_SD;
  // Resample to equal distances: the offset has changed the length.
  const auto resampled = points_along(curve.data(), arc.data(), POINTS, distance);
  return {{resampled, start.weight}, start.group, 0.5 * turn * turn};
}

// Weights each path by its turn, relative to the straightest one of its group.
std::vector<Path> weighed(const std::vector<Branch>& branches, std::size_t groups) {
  std::vector<double> straightest(groups, std::numeric_limits<double>::infinity());
  for (const Branch& branch : branches) {
    straightest[branch.group] = std::min(straightest[branch.group], branch.exponent);
  }
  std::vector<Path> paths;
  for (const Branch& branch : branches) {
    paths.push_back(branch.path);
    paths.back().weight *= std::exp(straightest[branch.group] - branch.exponent);
  }
  return paths;
}

}  // namespace

double nearest_heading(const Routes& lanes, Point position) {
  double heading = UNKNOWN_HEADING;
  double least_gap_m = std::numeric_limits<double>::infinity();
  for (const Route& route : lanes.routes) {
    if (!is_box_near(position, route)) continue;
    for (const Segment& segment : route.segments) {
      const double gap_m = nearest_on(segment, position).gap_m;
      if (gap_m > MATCH_RADIUS_M || gap_m >= least_gap_m) continue;
      least_gap_m = gap_m;
      heading = segment.heading;
    }
  }
  return heading;
}

std::vector<std::vector<Path>> lane_paths(const Routes& lanes, const std::vector<Traveller>& agents) {
  std::vector<std::vector<Path>> paths(agents.size());
  WithinReach within_reach(lanes, agents);
  Joined joined;
  for (std::size_t i = 0; i < agents.size(); ++i) {
    std::vector<Match> matches = match(lanes, agents[i].pose);
    group(lanes, matches);
    std::vector<Branch> branches;
    for (const Match& start : matches) {
      const double reach_m = start.along_m + agents[i].reach_m;
      const std::vector<Rows> chains = walk(start.lane, reach_m, lanes, within_reach);
      double fork_m = 0.0;
      if (is_alone(matches, start)) fork_m = common_length(lanes, chains) - start.along_m;
      for (const Rows& chain : chains) {
        join(lanes, chain, joined);
        branches.push_back(follow(joined, agents[i], start, fork_m));
      }
    }
    paths[i] = weighed(branches, matches.size());
  }
  return paths;
}

}  // namespace trajpred::onboard
