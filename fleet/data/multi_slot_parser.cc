// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/multi_slot_parser.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace fleet::data {
namespace {

// What is not printed counts as a blank.
bool IsBlank(char c) { return static_cast<unsigned char>(c) <= ' '; }
bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

void SkipBlanks(const char*& at, const char* end) {
  while (at < end && IsBlank(*at)) ++at;
}

bool EndsToken(const char* at, const char* end) {
  return at == end || IsBlank(*at);
}

// What stands at `at`, for a message: a word, cut where it is long.
std::string Found(const char* at, const char* end) {
  SkipBlanks(at, end);
  if (at == end) return "the end of the line";
  const char* stop = at;
  constexpr int kMaxShown = 24;
  while (stop < end && !IsBlank(*stop) && stop - at < kMaxShown) ++stop;
  std::string word(at, stop);
  if (!EndsToken(stop, end)) word += "...";
  return "'" + word + "'";
}

// The digits at `at`, at most eight and only where eight characters are left:
// their number and their value, without a branch for each.
struct Digits {
  int count = 0;
  uint64_t value = 0;
};

Digits TakeDigits(const char* at, const char* end) {
  if (std::endian::native != std::endian::little || end - at < 8) return {};
  uint64_t chunk;
  std::memcpy(&chunk, at, sizeof(chunk));
  // A digit becomes its value; with 0x76 added, all above 9 have the high bit.
  chunk ^= 0x3030303030303030;
  const uint64_t others =
      ((chunk + 0x7676767676767676) | chunk) & 0x8080808080808080;
  const int count = others == 0 ? 8 : std::countr_zero(others) / 8;
  if (count == 0) return {};
  // The digits go to the end, behind zeros; then pairs, fours, all are joined.
  chunk <<= 64 - 8 * count;
  chunk =
      (chunk & 0x0f000f000f000f00) / 256 + (chunk & 0x000f000f000f000f) * 10;
  chunk =
      (chunk >> 16 & 0x000000ff000000ff) + (chunk & 0x000000ff000000ff) * 100;
  return {count, (chunk >> 32) + (chunk & 0xffffffff) * 10000};
}

enum class Number { kGood, kNone, kTooLarge };

// Digits up to 2^64-1.
Number ParseUnsigned(const char*& at, const char* end, uint64_t& value) {
  const Digits first = TakeDigits(at, end);
  const char* p = at + first.count;
  uint64_t sum = first.value;
  // 19 digits always fit.
  const char* safe = end - at > 19 ? at + 19 : end;
  while (p < safe && IsDigit(*p)) sum = sum * 10 + (*p++ - '0');
  if (p == at) return Number::kNone;
  if (p == safe && p < end && IsDigit(*p)) {
    const auto [rest, error] = std::from_chars(at, end, sum);
    if (error != std::errc()) return Number::kTooLarge;
    p = rest;
  }
  if (!EndsToken(p, end)) return Number::kNone;
  at = p;
  value = sum;
  return Number::kGood;
}

// A key: as ParseUnsigned, or from -2^63 on; the bits.
Number ParseKey(const char*& at, const char* end, uint64_t& value) {
  if (at < end && (*at == '-' || *at == '+')) {
    const bool negative = *at == '-';
    const char* digits = at + 1;
    uint64_t size = 0;
    const Number outcome = ParseUnsigned(digits, end, size);
    if (outcome != Number::kGood) return outcome;
    if (negative && size > uint64_t{1} << 63) return Number::kTooLarge;
    at = digits;
    value = negative ? ~size + 1 : size;
    return Number::kGood;
  }
  return ParseUnsigned(at, end, value);
}

// Exact in a double, so that a product with them is rounded once.
constexpr std::array<double, 23> kPowersOfTen = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

constexpr std::array<uint64_t, 9> kWholePowersOfTen = {
    1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

Number ParseAnyFloat(const char*& at, const char* end, float& value) {
  double wide = 0;
  const char* begin = at < end && *at == '+' ? at + 1 : at;
  const auto [rest, error] = std::from_chars(begin, end, wide);
  if (error == std::errc::invalid_argument || !EndsToken(rest, end)) {
    return Number::kNone;
  }
  if (error == std::errc::result_out_of_range) {
    // Too small or too large: from_chars does not tell which.
    wide = std::strtod(std::string(begin, rest).c_str(), nullptr);
    if (std::isinf(wide)) return Number::kTooLarge;
  }
  if (std::isfinite(wide) &&
      std::abs(wide) > std::numeric_limits<float>::max()) {
    return Number::kTooLarge;
  }
  at = rest;
  value = static_cast<float>(wide);
  return Number::kGood;
}

// By way of a double, as Python and numpy do it. Numbers of a few digits, which
// is what files hold, need one multiplication; all others go to from_chars.
Number ParseFloat(const char*& at, const char* end, float& value) {
  const char* p = at;
  const bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  const char* digits = p;
  uint64_t mantissa = 0;
  while (p < end && IsDigit(*p)) mantissa = mantissa * 10 + (*p++ - '0');
  int64_t num_digits = p - digits;
  int64_t exponent = 0;
  if (p < end && *p == '.') {
    const char* fraction = ++p;
    const Digits first = TakeDigits(p, end);
    p += first.count;
    mantissa = mantissa * kWholePowersOfTen[first.count] + first.value;
    while (p < end && IsDigit(*p)) mantissa = mantissa * 10 + (*p++ - '0');
    exponent = fraction - p;
    num_digits += p - fraction;
  }
  if (num_digits == 0 || num_digits > 18 || !EndsToken(p, end) ||
      exponent < -22 || mantissa > uint64_t{1} << 53) {
    return ParseAnyFloat(at, end, value);
  }
  const double wide = static_cast<double>(mantissa) /
                      kPowersOfTen[static_cast<size_t>(-exponent)];
  value = static_cast<float>(negative ? -wide : wide);
  at = p;
  return Number::kGood;
}

}  // namespace

MultiSlotParser::MultiSlotParser(std::vector<Slot> slots, int num_texts)
    : slots_(std::move(slots)), num_texts_(num_texts) {
  for (const Slot& slot : slots_) {
    forms_.push_back(
        {slot.type == SlotType::kFloat32, slot.ragged, slot.width()});
  }
}

std::string MultiSlotParser::Name(size_t slot) const {
  return base::Concat("slot '", slots_[slot].name, "' (", slot + 1, " of ",
                      slots_.size(), ")");
}

Status MultiSlotParser::Parse(std::string_view line, uint32_t file,
                              SampleBlock& block) const {
  Cursor cursor{line.data(), line.data() + line.size()};
  SkipBlanks(cursor.at, cursor.end);
  if (cursor.at == cursor.end) return OkStatus();
  for (int i = 0; i < num_texts_; ++i) RETURN_IF_ERROR(SkipText(i, cursor));
  block.Begin(file);
  for (size_t i = 0; i < forms_.size(); ++i) {
    if (Status status = ParseSlot(i, cursor, block); !status.ok()) {
      block.Drop();
      return status;
    }
  }
  SkipBlanks(cursor.at, cursor.end);
  if (cursor.at != cursor.end) {
    block.Drop();
    return InvalidArgument("the line goes on after the last of ", slots_.size(),
                           " slots, '", slots_.back().name, "', with ",
                           Found(cursor.at, cursor.end));
  }
  block.End();
  return OkStatus();
}

Status MultiSlotParser::SkipText(int index, Cursor& cursor) const {
  SkipBlanks(cursor.at, cursor.end);
  uint64_t count = 0;
  const char* before = cursor.at;
  if (ParseUnsigned(cursor.at, cursor.end, count) != Number::kGood ||
      count != 1) {
    return InvalidArgument("text ", index + 1, " of ", num_texts_,
                           " before the slots: expected '1 <text>', but found ",
                           Found(before, cursor.end));
  }
  SkipBlanks(cursor.at, cursor.end);
  if (cursor.at == cursor.end) {
    return InvalidArgument("text ", index + 1, " of ", num_texts_,
                           " before the slots: expected a text, but found the "
                           "end of the line");
  }
  while (cursor.at < cursor.end && !IsBlank(*cursor.at)) ++cursor.at;
  return OkStatus();
}

Status MultiSlotParser::WrongCount(size_t slot, uint64_t count) const {
  const Form& form = forms_[slot];
  if (form.ragged) {
    return InvalidArgument(Name(slot), ": ", count, " values are no rows of ",
                           form.width);
  }
  return InvalidArgument(Name(slot), ": expected ", form.width,
                         form.width == 1 ? " value" : " values",
                         ", but the line says ", count);
}

Status MultiSlotParser::ParseSlot(size_t slot, Cursor& cursor,
                                  SampleBlock& block) const {
  const Form& form = forms_[slot];
  const char* at = cursor.at;
  const char* const end = cursor.end;
  SkipBlanks(at, end);
  uint64_t count = 0;
  if (end - at > 1 && IsDigit(at[0]) && IsBlank(at[1])) [[likely]] {
    count = static_cast<uint64_t>(*at++ - '0');
  } else if (ParseUnsigned(at, end, count) != Number::kGood) {
    return InvalidArgument(Name(slot),
                           ": expected the number of its values, but found ",
                           Found(at, end));
  }
  const bool fits = !form.ragged      ? count == form.width
                    : form.width == 1 ? true  // without a division
                                      : count % form.width == 0;
  if (!fits) return WrongCount(slot, count);
  // Every value takes a blank and a digit: more cannot be there, and would be
  // memory that the line does not fill.
  if (count > static_cast<uint64_t>(end - at)) {
    return InvalidArgument(Name(slot), ": the line says ", count,
                           " values and has ", end - at, " characters left");
  }
  const size_t words = count * (form.is_float ? 1 : 2) + (form.ragged ? 1 : 0);
  uint32_t* to = block.Reserve(words);
  if (form.ragged) *to++ = static_cast<uint32_t>(count);
  for (uint64_t i = 0; i < count; ++i) {
    SkipBlanks(at, end);
    Number outcome;
    if (form.is_float) {
      float value = 0;
      outcome = ParseFloat(at, end, value);
      std::memcpy(to, &value, sizeof(value));
      to += 1;
    } else {
      uint64_t value = 0;
      outcome = ParseKey(at, end, value);
      std::memcpy(to, &value, sizeof(value));
      to += 2;
    }
    if (outcome == Number::kGood) [[likely]]
      continue;
    const char* kind = form.is_float ? "a number" : "an integer of 64 bits";
    return InvalidArgument(
        Name(slot), ": expected ", kind, " as value ", i + 1, " of ", count,
        ", but found ", Found(at, end),
        outcome == Number::kTooLarge ? ", which does not fit" : "");
  }
  block.Used(words);
  cursor.at = at;
  return OkStatus();
}

}  // namespace fleet::data
