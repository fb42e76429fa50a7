// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/slurm.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <system_error>

namespace fleet::cluster {
namespace {

// Slurm's own limit on nodes is 64 Ki; without one, a typing error such as
// n[1-1000000000] would fill the memory.
constexpr size_t kMaxNodes = 65536;
// Digits of a number in brackets; fits 64 bits.
constexpr size_t kMaxDigits = 18;

template <typename... Parts>
Status Fault(std::string_view source, std::string_view text,
             const Parts&... parts) {
  return InvalidArgument(source, ": '", text, "': ", parts...);
}

// nullopt unless `text` consists of 1 to 18 digits.
std::optional<int64_t> ParseDigits(std::string_view text) {
  if (text.empty() || text.size() > kMaxDigits ||
      !std::all_of(text.begin(), text.end(),
                   [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Cuts at the commas outside of brackets. nullopt when brackets do not match.
std::optional<std::vector<std::string_view>> SplitOutsideBrackets(
    std::string_view text) {
  std::vector<std::string_view> items;
  bool inside = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == ']') {
      if (inside != (text[i] == ']')) return std::nullopt;
      inside = !inside;
    } else if (text[i] == ',' && !inside) {
      items.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (inside) return std::nullopt;
  items.push_back(text.substr(begin));
  return items;
}

// "08" or "08-10": the numbers with the width of the first.
Result<std::vector<std::string>> ExpandRange(std::string_view range,
                                             std::string_view text,
                                             std::string_view source) {
  const size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high =
      dash == std::string_view::npos ? low : range.substr(dash + 1);
  const auto first = ParseDigits(low);
  const auto last = ParseDigits(high);
  if (!first || !last || *first > *last) {
    return Fault(source, text, "'", range, "' is not a range of numbers");
  }
  if (static_cast<size_t>(*last - *first) >= kMaxNodes) {
    return Fault(source, text, "more than ", kMaxNodes, " nodes");
  }
  std::vector<std::string> numbers;
  for (int64_t n = *first; n <= *last; ++n) {
    std::string number = std::to_string(n);
    if (number.size() < low.size()) {
      number.insert(0, low.size() - number.size(), '0');
    }
    numbers.push_back(std::move(number));
  }
  return numbers;
}

// Everything that a bracket's content stands for.
Result<std::vector<std::string>> ExpandBracket(std::string_view ranges,
                                               std::string_view text,
                                               std::string_view source) {
  std::vector<std::string> numbers;
  while (true) {
    const size_t comma = ranges.find(',');
    ASSIGN_OR_RETURN(std::vector<std::string> more,
                     ExpandRange(ranges.substr(0, comma), text, source));
    numbers.insert(numbers.end(), more.begin(), more.end());
    if (numbers.size() > kMaxNodes) {
      return Fault(source, text, "more than ", kMaxNodes, " nodes");
    }
    if (comma == std::string_view::npos) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

// One item of the list, which may hold several brackets.
Result<std::vector<std::string>> ExpandItem(std::string_view item,
                                            std::string_view text,
                                            std::string_view source) {
  std::vector<std::string> names = {""};
  while (!item.empty()) {
    const size_t open = std::min(item.find('['), item.size());
    std::vector<std::string> tails = {""};
    const std::string literal(item.substr(0, open));
    item.remove_prefix(open);
    if (!item.empty()) {
      const size_t close = item.find(']');
      ASSIGN_OR_RETURN(tails,
                       ExpandBracket(item.substr(1, close - 1), text, source));
      item.remove_prefix(close + 1);
    }
    if (names.size() * tails.size() > kMaxNodes) {
      return Fault(source, text, "more than ", kMaxNodes, " nodes");
    }
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& tail : tails) {
        longer.push_back(name + literal + tail);
      }
    }
    names = std::move(longer);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> ParseSlurmNodeList(std::string_view text,
                                                    std::string_view source) {
  const auto items = SplitOutsideBrackets(text);
  if (!items) return Fault(source, text, "brackets do not match");
  std::vector<std::string> nodes;
  std::set<std::string> seen;
  for (std::string_view item : *items) {
    if (item.empty()) return Fault(source, text, "a name is empty");
    ASSIGN_OR_RETURN(std::vector<std::string> names,
                     ExpandItem(item, text, source));
    for (std::string& name : names) {
      if (!seen.insert(name).second) {
        return Fault(source, text, name, " occurs twice");
      }
      nodes.push_back(std::move(name));
    }
    if (nodes.size() > kMaxNodes) {
      return Fault(source, text, "more than ", kMaxNodes, " nodes");
    }
  }
  return nodes;
}

Result<std::vector<int>> ParseSlurmTasksPerNode(std::string_view text,
                                                std::string_view source) {
  std::vector<int> tasks;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    std::optional<int64_t> repeat = 1;
    if (const size_t open = item.find("(x"); open != item.npos) {
      repeat = item.back() == ')'
                   ? ParseDigits(item.substr(open + 2, item.size() - open - 3))
                   : std::nullopt;
      item = item.substr(0, open);
    }
    const auto count = ParseDigits(item);
    if (!count || !repeat || *repeat < 1 || *count > INT32_MAX ||
        tasks.size() + static_cast<size_t>(*repeat) > kMaxNodes) {
      return Fault(source, text, "is not of the form 2(x3),1");
    }
    tasks.insert(tasks.end(), *repeat, static_cast<int>(*count));
    if (comma == std::string_view::npos) return tasks;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace fleet::cluster
