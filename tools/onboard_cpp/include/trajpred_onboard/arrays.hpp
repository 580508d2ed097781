// Arrays of numbers with a shape: the inputs and outputs of the graphs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace trajpred::onboard {

using Shape = std::vector<std::int64_t>;
using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;
// Each 0 or 1.
using Flags = std::vector<std::uint8_t>;

// An array in C order: float32, int64 or bool.
struct Array {
  Shape shape;
  std::variant<Floats, Integers, Flags> values;
};

// Arrays by the names of `INTERFACE.md`.
using Arrays = std::map<std::string, Array>;

}  // namespace trajpred::onboard
