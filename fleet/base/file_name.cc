// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/file_name.h"

#include <cstddef>

namespace fleet::base {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEF";

// The value of a hexadecimal digit; -1 for other characters.
int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool IsEscape(std::string_view text, size_t at) {
  return text[at] == '%' && at + 2 < text.size() && Digit(text[at + 1]) >= 0 &&
         Digit(text[at + 2]) >= 0;
}

}  // namespace

std::string FileNameOf(std::string_view name) {
  std::string file;
  file.reserve(name.size());
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool escaped =
        c == '/' || c == '\0' || (c == '.' && i == 0) || IsEscape(name, i);
    if (!escaped) {
      file += c;
      continue;
    }
    const auto value = static_cast<unsigned char>(c);
    file += '%';
    file += kDigits[value / 16];
    file += kDigits[value % 16];
  }
  return file;
}

std::string NameOfFile(std::string_view file_name) {
  std::string name;
  name.reserve(file_name.size());
  for (size_t i = 0; i < file_name.size(); ++i) {
    if (!IsEscape(file_name, i)) {
      name += file_name[i];
      continue;
    }
    name += static_cast<char>(16 * Digit(file_name[i + 1]) +
                              Digit(file_name[i + 2]));
    i += 2;
  }
  return name;
}

std::optional<std::string> NameUnderConstruction(std::string_view name) {
  constexpr std::string_view kEnding = ".tmp";
  if (!name.starts_with('.') || !name.ends_with(kEnding)) return std::nullopt;
  name.remove_prefix(1);
  name.remove_suffix(kEnding.size());
  // The process and its count.
  for (int i = 0; i < 2; ++i) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot + 1 == name.size() ||
        name.find_first_not_of("0123456789", dot + 1) !=
            std::string_view::npos) {
      return std::nullopt;
    }
    name = name.substr(0, dot);
  }
  return std::string(name);
}

}  // namespace fleet::base
