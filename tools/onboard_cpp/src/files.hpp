// Files as text, with a limit on their size. Not installed.
#pragma once

#include <cstdint>
#include <string>

namespace trajpred::onboard {

// Reads a file. Throws DataError if it is missing, no regular file, or larger than `limit` bytes.
std::string read_file(const std::string& path, std::uintmax_t limit);

// Returns the SHA-256 of `content` in hexadecimal digits (FIPS 180-4).
std::string sha256(const std::string& content);

}  // namespace trajpred::onboard
