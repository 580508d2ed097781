// Operations on rows and on polylines of any length: trajpred/data/ragged.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "trajpred_onboard/geometry.hpp"

namespace trajpred::onboard {

using Rows = std::vector<std::size_t>;

// Selects the `count` smallest of `rows` by `less`, ascending; ties go to the first.
template <class Less>
Rows smallest(Rows rows, std::size_t count, const Less& less) {
  if (rows.size() > count) {
    const auto before = [&less](std::size_t a, std::size_t b) {
      if (less(a, b)) return true;
      if (less(b, a)) return false;
      return a < b;
    };
    const auto end = rows.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(rows.begin(), end, rows.end(), before);
    rows.erase(end, rows.end());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

// Finds points of a polyline by their distance from its start; fastest for ascending distances.
class Interpolation {
 public:
  // `line` needs a point; both must outlive the object. `arc`: see arc_length().
  Interpolation(const Point* line, const double* arc, std::size_t size)
      : line_(line), arc_(arc), size_(size) {}

  Point operator()(double distance);

 private:
  const Point* line_;
  const double* arc_;
  std::size_t size_;
  std::size_t place_ = 0;
};

// Returns number `i` of `count` equally spaced numbers from 0 to 1.
inline double share_of(std::size_t i, std::size_t count) {
  if (i + 1 == count) return 1.0;
  return static_cast<double>(i) * (1.0 / static_cast<double>(count - 1));
}

// Interpolates `points` points at equal distances along a polyline, both ends included.
// A polyline without points gives zeros.
Polyline resample(const Polyline& line, std::size_t points);

}  // namespace trajpred::onboard
