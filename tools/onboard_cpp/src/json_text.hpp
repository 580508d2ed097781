// JSON with bounded nesting: nlohmann's dump() calls itself at every level. Not installed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

// Deepest nesting of a text.
inline constexpr int MAX_DEPTH = 100;

// Throws DataError if a text is nested too deeply.
inline void require_depth(int depth) {
  require(depth <= MAX_DEPTH, "", "is nested deeper than " + std::to_string(MAX_DEPTH) + " levels");
}

// Parses a text. Throws DataError if it is nested too deeply, Json::exception if it is not JSON.
template <class Json>
Json parse_json(const std::string& text) {
  using Event = typename Json::parse_event_t;
  const auto is_kept = [](int depth, Event, Json&) {
    require_depth(depth);
    return true;
  };
  return Json::parse(text, is_kept);
}

}  // namespace trajpred::onboard
