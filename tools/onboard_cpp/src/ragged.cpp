#include "trajpred_onboard/ragged.hpp"

namespace trajpred::onboard {

Point Interpolation::operator()(double distance) {
  if (distance < arc_[place_]) place_ = 0;
  while (place_ + 1 < size_ && arc_[place_ + 1] <= distance) ++place_;
  const Point start = line_[place_];
  const bool at_end = place_ + 1 == size_ || distance <= arc_[place_];
  if (at_end) return start;
  const double metres = arc_[place_ + 1] - arc_[place_];
  const Point slope = (line_[place_ + 1] - start);
  return {slope.x / metres * (distance - arc_[place_]) + start.x,
          slope.y / metres * (distance - arc_[place_]) + start.y};
}

Polyline resample(const Polyline& line, std::size_t points) {
  Polyline resampled(points);
  if (line.empty()) return resampled;
  const std::vector<double> arc = arc_length(line);
  Interpolation point_at(line.data(), arc.data(), line.size());
  for (std::size_t i = 0; i < points; ++i) {
    resampled[i] = point_at(arc.back() * share_of(i, points));
  }
  return resampled;
}

}  // namespace trajpred::onboard
