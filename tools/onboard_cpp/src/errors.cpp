#include "trajpred_onboard/errors.hpp"

#include <cstdio>
#include <sstream>
#include <utility>

namespace trajpred::onboard {

namespace {

// Stands for bytes that are not UTF-8.
constexpr char32_t INVALID = 0xFFFFFFFF;

struct Range {
  char32_t first;
  char32_t last;
};

// Control and format characters, separators but the space, surrogates and private use (Unicode 15).
// Python also treats unassigned characters as not printable; these depend on the version of Unicode.
constexpr Range NOT_PRINTABLE[] = {
    {0x0, 0x1F},        {0x7F, 0xA0},       {0xAD, 0xAD},         {0x600, 0x605},     {0x61C, 0x61C},
    {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},       {0x8E2, 0x8E2},     {0x1680, 0x1680},
    {0x180E, 0x180E},   {0x2000, 0x200F},   {0x2028, 0x202F},     {0x205F, 0x2064},   {0x2066, 0x206F},
    {0x3000, 0x3000},   {0xD800, 0xF8FF},   {0xFEFF, 0xFEFF},     {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
    {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},   {0x1D173, 0x1D17A}, {0xE0001, 0xE0001},
    {0xE0020, 0xE007F}, {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD},
};

bool is_printable(char32_t character) {
  if (character == INVALID) return false;
  for (const Range& range : NOT_PRINTABLE) {
    if (character >= range.first && character <= range.last) return false;
  }
  return true;
}

struct Character {
  char32_t code;
  std::size_t bytes;
};

// Returns the number of bytes announced by a character's first byte, 0 if it is not one.
std::size_t announced_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  if (first >= 0xF0 && first < 0xF5) return 4;
  return 0;
}

// Decodes the character at `position`; a byte that is not UTF-8 is one invalid character.
Character character_at(const std::string& text, std::size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  const std::size_t bytes = announced_bytes(first);
  if (bytes == 1) return {first, 1};
  if (bytes == 0 || position + bytes > text.size()) return {INVALID, 1};
  char32_t code = first & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[position + i]);
    if ((next & 0xC0) != 0x80) return {INVALID, 1};
    code = (code << 6) | (next & 0x3Fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF) return {INVALID, 1};
  return {code, bytes};
}

std::vector<Character> characters_of(const std::string& text) {
  std::vector<Character> characters;
  characters.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    characters.push_back(character_at(text, position));
    position += characters.back().bytes;
  }
  return characters;
}

// Returns the first `count` bytes' worth of characters.
std::size_t bytes_of(const std::vector<Character>& characters, std::size_t first, std::size_t last) {
  std::size_t bytes = 0;
  for (std::size_t i = first; i < last; ++i) bytes += characters[i].bytes;
  return bytes;
}

std::string escaped(char32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  const char* format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
  char text[16];
  std::snprintf(text, sizeof text, format, static_cast<unsigned>(code));
  return text;
}

std::string described(const std::string& message, const std::string& field, const std::string& file) {
  std::string where = shortened(file);
  if (!field.empty()) {
    where += where.empty() ? "" : ", ";
    where += "field " + quoted(field);
  }
  return where.empty() ? shortened(message) : where + ": " + shortened(message);
}

}  // namespace

DataError::DataError(std::string message, std::string field, std::string file)
    : std::runtime_error(described(message, field, file)),
      message_(std::move(message)),
      field_(std::move(field)),
      file_(std::move(file)) {}

DataError DataError::located(const std::string& file) const {
  return DataError(message_, field_, file_.empty() ? file : file_);
}

void require(bool condition, std::string_view field, std::string_view message) {
  if (!condition) throw DataError(std::string(message), std::string(field));
}

bool is_name(const std::string& text) {
  if (text.empty() || text.size() > 4 * MAX_NAME) return false;
  const std::vector<Character> characters = characters_of(text);
  if (characters.size() > MAX_NAME) return false;
  for (const Character& character : characters) {
    if (!is_printable(character.code)) return false;
  }
  return true;
}

std::string shortened(const std::string& text, std::size_t limit) {
  if (text.size() <= limit) return text;
  const std::vector<Character> characters = characters_of(text);
  const std::size_t count = characters.size();
  if (count <= limit) return text;
  const std::size_t head = bytes_of(characters, 0, limit * 3 / 4);
  const std::size_t tail = bytes_of(characters, count - (limit + 3) / 4, count);
  const std::string gap = " … (" + std::to_string(count) + " characters) … ";
  return text.substr(0, head) + gap + text.substr(text.size() - tail);
}

std::string quoted(const std::string& text) {
  const std::string cut = shortened(text, MAX_QUOTED);
  const bool has_single = cut.find('\'') != std::string::npos;
  const bool has_double = cut.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string result(1, quote);
  std::size_t position = 0;
  for (const Character& character : characters_of(cut)) {
    const std::string bytes = cut.substr(position, character.bytes);
    position += character.bytes;
    if (character.code == INVALID) {
      result += escaped(static_cast<unsigned char>(bytes[0]));
    } else if (bytes == "\\" || bytes[0] == quote) {
      result += "\\" + bytes;
    } else {
      result += is_printable(character.code) ? bytes : escaped(character.code);
    }
  }
  return result + quote;
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

std::string formatted(const char* format, double value) {
  char text[400];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string grouped(std::size_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t place = digits.size(); place > 3;) {
    place -= 3;
    digits.insert(place, ",");
  }
  return digits;
}

std::string on_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  std::string word;
  while (words >> word) {
    if (!line.empty()) line += " ";
    line += word;
  }
  return line;
}

}  // namespace trajpred::onboard
