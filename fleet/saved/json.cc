// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <system_error>

#include "fleet/base/check.h"

namespace fleet::saved {
namespace {

// As many digits as Python makes an integer of: the time grows with their
// square.
constexpr size_t kMaxDigits = 4300;

// ---- texts

// Takes a code point from the front of UTF-8; nothing for bytes that are none.
std::optional<char32_t> TakeCodePoint(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  size_t size = 1;
  char32_t point = first;
  if (first >= 0xF0 && first < 0xF8) {
    size = 4, point = first & 0x07;
  } else if (first >= 0xE0 && first < 0xF0) {
    size = 3, point = first & 0x0F;
  } else if (first >= 0xC0 && first < 0xE0) {
    size = 2, point = first & 0x1F;
  } else if (first >= 0x80) {
    return std::nullopt;
  }
  if (text.size() < size) return std::nullopt;
  for (size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return std::nullopt;
    point = point << 6 | (next & 0x3F);
  }
  // Each code point has one form: the shortest.
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kSmallest[size] || point > 0x10FFFF) return std::nullopt;
  text.remove_prefix(size);
  return point;
}

void AppendCodePoint(std::string& out, char32_t point) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

void AppendEscape(std::string& out, char32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[unit >> shift & 0xF];
  }
}

constexpr bool IsHigh(char32_t unit) { return unit >> 10 == 0xD800 >> 10; }
constexpr bool IsLow(char32_t unit) { return unit >> 10 == 0xDC00 >> 10; }

// The letter after a backslash and what it stands for.
constexpr std::pair<char, char> kEscapes[] = {
    {'"', '"'},  {'\\', '\\'}, {'b', '\b'}, {'f', '\f'},
    {'n', '\n'}, {'r', '\r'},  {'t', '\t'}};

// ---- reading

class Parser {
 public:
  Parser(std::string_view text, int max_depth)
      : rest_(text), max_depth_(max_depth) {}

  Result<Json> Parse() {
    ASSIGN_OR_RETURN(Json value, Next(0));
    SkipSpace();
    if (!rest_.empty()) return Wrong();
    return value;
  }

 private:
  static Status Wrong() { return DataLoss("its header is no JSON"); }

  void SkipSpace() {
    rest_.remove_prefix(
        std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool Take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  Result<Json> Next(int depth) {
    SkipSpace();
    if (rest_.starts_with('[') || rest_.starts_with('{')) {
      if (depth >= max_depth_) return Wrong();
      return rest_.front() == '[' ? Array(depth) : Object(depth);
    }
    if (rest_.starts_with('"')) {
      ASSIGN_OR_RETURN(std::string text, Text());
      return Json{std::move(text)};
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (Take("null")) return Json{};
    if (Take("true")) return Json{true};
    if (Take("false")) return Json{false};
    if (Take("NaN")) return Json{std::numeric_limits<double>::quiet_NaN()};
    if (Take("Infinity")) return Json{kInfinity};
    if (Take("-Infinity")) return Json{-kInfinity};
    return Number();
  }

  Result<Json> Array(int depth) {
    rest_.remove_prefix(1);
    JsonArray items;
    SkipSpace();
    if (Take("]")) return Json{std::move(items)};
    while (true) {
      ASSIGN_OR_RETURN(Json item, Next(depth + 1));
      items.push_back(std::move(item));
      SkipSpace();
      if (Take("]")) return Json{std::move(items)};
      if (!Take(",")) return Wrong();
    }
  }

  Result<Json> Object(int depth) {
    rest_.remove_prefix(1);
    JsonObject members;
    SkipSpace();
    if (Take("}")) return Json{std::move(members)};
    while (true) {
      SkipSpace();
      if (!rest_.starts_with('"')) return Wrong();
      ASSIGN_OR_RETURN(std::string name, Text());
      SkipSpace();
      if (!Take(":")) return Wrong();
      ASSIGN_OR_RETURN(Json value, Next(depth + 1));
      members.emplace_back(std::move(name), std::move(value));
      SkipSpace();
      if (Take("}")) return Json{std::move(members)};
      if (!Take(",")) return Wrong();
    }
  }

  Result<Json> Number() {
    const size_t size =
        std::min(rest_.find_first_not_of("+-.0123456789Ee"), rest_.size());
    const std::string_view number = rest_.substr(0, size);
    if (!IsNumber(number)) return Wrong();
    rest_.remove_prefix(size);
    const char* end = number.data() + number.size();
    if (number.find_first_of(".eE") != std::string_view::npos) {
      double value = 0;
      const auto read = std::from_chars(number.data(), end, value);
      if (read.ec != std::errc() || read.ptr != end) return Wrong();
      return Json{value};
    }
    int64_t value = 0;
    const auto read = std::from_chars(number.data(), end, value);
    if (read.ec == std::errc() && read.ptr == end) return Json{value};
    if (number.size() > kMaxDigits) return Wrong();
    return Json{BigInteger{std::string(number)}};
  }

  // -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
  static bool IsNumber(std::string_view text) {
    const auto digits = [&] {
      const size_t count =
          std::min(text.find_first_not_of("0123456789"), text.size());
      text.remove_prefix(count);
      return count;
    };
    if (text.starts_with('-')) text.remove_prefix(1);
    const bool begins_with_zero = text.starts_with('0');
    const size_t count = digits();
    if (count == 0 || (begins_with_zero && count > 1)) return false;
    if (text.starts_with('.')) {
      text.remove_prefix(1);
      if (digits() == 0) return false;
    }
    if (text.starts_with('e') || text.starts_with('E')) {
      text.remove_prefix(1);
      if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
      if (digits() == 0) return false;
    }
    return text.empty();
  }

  Result<std::string> Text() {
    rest_.remove_prefix(1);
    std::string text;
    while (true) {
      if (rest_.empty()) return Wrong();
      const char c = rest_.front();
      if (c == '"') {
        rest_.remove_prefix(1);
        return text;
      }
      if (c == '\\') {
        rest_.remove_prefix(1);
        if (!Escape(text)) return Wrong();
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20) return Wrong();
      const std::string_view before = rest_;
      if (!TakeCodePoint(rest_)) return Wrong();
      text += before.substr(0, before.size() - rest_.size());
    }
  }

  // What stands behind a backslash.
  bool Escape(std::string& text) {
    if (Take("/")) {
      text += '/';
      return true;
    }
    for (const auto& [letter, meaning] : kEscapes) {
      if (rest_.starts_with(letter)) {
        rest_.remove_prefix(1);
        text += meaning;
        return true;
      }
    }
    if (!Take("u")) return false;
    const std::optional<char32_t> unit = FourDigits();
    if (!unit) return false;
    if (IsHigh(*unit) && rest_.starts_with("\\u")) {
      const std::string_view before = rest_;
      rest_.remove_prefix(2);
      const std::optional<char32_t> low = FourDigits();
      if (!low) return false;
      if (IsLow(*low)) {
        AppendCodePoint(text,
                        0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00));
        return true;
      }
      rest_ = before;  // it stands for itself
    }
    AppendCodePoint(text, *unit);
    return true;
  }

  std::optional<char32_t> FourDigits() {
    if (rest_.size() < 4) return std::nullopt;
    uint32_t unit = 0;
    const char* end = rest_.data() + 4;
    const auto read = std::from_chars(rest_.data(), end, unit, 16);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
    rest_.remove_prefix(4);
    return unit;
  }

  std::string_view rest_;
  const int max_depth_;
};

}  // namespace

const Json* Json::Find(std::string_view name) const {
  const auto* members = std::get_if<JsonObject>(&held);
  if (members == nullptr) return nullptr;
  for (const auto& [key, value] : *members) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<Json> ParseJson(std::string_view text, int max_depth) {
  return Parser(text, max_depth).Parse();
}

bool AppendJsonText(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::optional<char32_t> point = TakeCodePoint(text);
    if (!point) return false;
    const auto* escape = std::find_if(
        std::begin(kEscapes), std::end(kEscapes), [&](const auto& each) {
          return static_cast<char32_t>(each.second) == *point;
        });
    if (escape != std::end(kEscapes)) {
      out += '\\';
      out += escape->first;
    } else if (*point >= 0x20 && *point < 0x7F) {
      out += static_cast<char>(*point);
    } else if (*point < 0x10000) {
      AppendEscape(out, *point);
    } else {
      AppendEscape(out, 0xD800 + ((*point - 0x10000) >> 10));
      AppendEscape(out, 0xDC00 + ((*point - 0x10000) & 0x3FF));
    }
  }
  out += '"';
  return true;
}

// Python chooses among the two forms by the exponent alone, std::to_chars by
// the length, so only the digits are taken from it.
void AppendJsonNumber(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "NaN";
    return;
  }
  if (std::signbit(number)) out += '-';
  number = std::fabs(number);
  if (std::isinf(number)) {
    out += "Infinity";
    return;
  }
  char buffer[32];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), number,
                                     std::chars_format::scientific);
  FLEET_CHECK(written.ec == std::errc());
  const std::string_view text(buffer, written.ptr - buffer);
  const size_t mark = text.find('e');
  std::string digits(text.substr(0, mark));
  if (digits.size() > 1) digits.erase(1, 1);  // the point
  int exponent = 0;
  const char* sign = buffer + mark + 1;
  std::from_chars(*sign == '+' ? sign + 1 : sign, written.ptr, exponent);

  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) (out += '.').append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    out += std::to_string(std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(-exponent - 1, '0') + digits;
  } else if (exponent + 1 >= count) {
    out += digits + std::string(exponent + 1 - count, '0') + ".0";
  } else {
    out += digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
  }
}

}  // namespace fleet::saved
