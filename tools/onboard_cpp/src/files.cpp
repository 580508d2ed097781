#include "files.hpp"

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

using Words = std::array<std::uint32_t, 8>;

constexpr std::array<std::uint32_t, 64> ROUND = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
constexpr Words INITIAL = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::size_t BLOCK = 64;

std::uint32_t turned(std::uint32_t word, unsigned bits) { return (word >> bits) | (word << (32 - bits)); }

// Extends the 16 words of a block to the 64 words of its rounds.
std::array<std::uint32_t, 64> schedule(const unsigned char* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t byte = 0; byte < 4; ++byte) w[i] = (w[i] << 8) | block[4 * i + byte];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  return w;
}

void add_block(const unsigned char* block, Words& state) {
  const auto w = schedule(block);
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
    const std::uint32_t s0 = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t first = h + s1 + choice + ROUND[i] + w[i];
    const std::uint32_t second = s0 + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const Words sum = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < sum.size(); ++i) state[i] += sum[i];
}

}  // namespace

std::string read_file(const std::string& path, std::uintmax_t limit) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw DataError("no such file", "", path);
  if (!std::filesystem::is_regular_file(status)) throw DataError("is not a regular file", "", path);
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw DataError("cannot be read (" + error.message() + ")", "", path);
  const std::string excess = grouped(size) + " bytes, more than " + grouped(limit);
  if (size > limit) throw DataError("has " + excess, "", path);
  std::string content(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(content.data(), static_cast<std::streamsize>(size));
  if (!file) throw DataError("cannot be read", "", path);
  return content;
}

std::string sha256(const std::string& content) {
  Words state = INITIAL;
  const auto* bytes = reinterpret_cast<const unsigned char*>(content.data());
  const std::size_t whole = content.size() / BLOCK * BLOCK;
  for (std::size_t start = 0; start < whole; start += BLOCK) add_block(bytes + start, state);
  // The rest, a bit 1, zeros, and the number of bits: one or two blocks.
  std::string rest = content.substr(whole) + '\x80';
  while (rest.size() % BLOCK != BLOCK - 8) rest += '\0';
  const std::uint64_t bits = static_cast<std::uint64_t>(content.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) rest += static_cast<char>((bits >> shift) & 0xFF);
  const auto* last = reinterpret_cast<const unsigned char*>(rest.data());
  for (std::size_t start = 0; start < rest.size(); start += BLOCK) add_block(last + start, state);
  std::string digits;
  for (std::uint32_t word : state) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(word));
    digits += text;
  }
  return digits;
}

}  // namespace trajpred::onboard
