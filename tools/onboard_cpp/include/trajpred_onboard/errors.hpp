// DataError, the only exception for invalid input, and texts for messages: trajpred/errors.py.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace trajpred::onboard {

// Maximum number of characters of the name of a track.
inline constexpr std::size_t MAX_NAME = 256;
// Maximum number of characters of a quoted value, and of a whole message.
inline constexpr std::size_t MAX_QUOTED = 80;
inline constexpr std::size_t MAX_MESSAGE = 1000;

// Invalid input, reported in one sentence with the file and field at fault, if known.
class DataError : public std::runtime_error {
 public:
  explicit DataError(std::string message, std::string field = "", std::string file = "");

  // Returns this error with `file` filled in, unless it already names a file.
  DataError located(const std::string& file) const;

 private:
  std::string message_;
  std::string field_;
  std::string file_;
};

// Throws DataError about `field` unless `condition` holds.
void require(bool condition, std::string_view field, std::string_view message);

// Returns whether `text` is UTF-8, printable, and neither empty nor longer than MAX_NAME characters.
bool is_name(const std::string& text);

// Cuts the middle out of a text of more than `limit` characters.
std::string shortened(const std::string& text, std::size_t limit = MAX_MESSAGE);

// Returns a text in quotes, shortened, with escapes for non-printable characters.
std::string quoted(const std::string& text);

// Returns the texts with ", " between them.
std::string joined_names(const std::vector<std::string>& names);

// Formats one number as printf does.
std::string formatted(const char* format, double value);

// Formats a count with commas between thousands.
std::string grouped(std::size_t count);

// Replaces every run of white space by one space, so that a message is one line.
std::string on_one_line(const std::string& text);

}  // namespace trajpred::onboard
