// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/aten_error.h"

#include <cctype>
#include <cerrno>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>

namespace fleet::ops {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTypeNames[] = {
    {"Bool", "bool"},
    {"Byte", "uint8"},
    {"Char", "int8"},
    {"Short", "int16"},
    {"Int", "int32"},
    {"Long", "int64"},
    {"Half", "float16"},
    {"BFloat16", "bfloat16"},
    {"Float", "float32"},
    {"Double", "float64"},
    {"ComplexFloat", "complex64"},
    {"ComplexDouble", "complex128"},
};

bool IsWordPart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == ':';
}

// `text` with ATen's names of element types, as whole words, replaced by ours.
std::string WithOurTypeNames(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && IsWordPart(text[end])) ++end;
    std::string_view word = text.substr(i, end - i);
    for (const auto& [theirs, ours] : kTypeNames) {
      if (word == theirs) word = ours;
    }
    result += word;
    i = end;
    if (i < text.size()) result += text[i++];
  }
  return result;
}

// ATen's text for a lack of memory, on the CPU and on a GPU.
bool IsOutOfMemory(std::string_view text) {
  return text.find("can't allocate memory") != text.npos ||
         text.find("out of memory") != text.npos;
}

// "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't
// allocate memory: you tried to allocate 8 bytes. Error code 12 (...)", or
// "CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has ...".
std::string OutOfMemoryText(const std::string& text) {
  size_t begin = text.find("to allocate");
  if (begin == text.npos) return text;
  std::string result = "failed ";
  return result.append(text, begin, text.find(". ", begin) - begin);
}

}  // namespace

Status FromException(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return ErrnoStatus(ENOMEM, "an allocation");
  }
  std::string text = error.what();
  if (auto* aten = dynamic_cast<const c10::Error*>(&error)) {
    text = aten->what_without_backtrace();
  }
  if (text.find("modified by an inplace operation") != text.npos) {
    return InvalidArgument(
        "a tensor whose values backward needs was changed in place after its "
        "use; change a copy of it, as x.clone() gives");
  }
  if (IsOutOfMemory(text)) return ErrnoStatus(ENOMEM, OutOfMemoryText(text));
  return InvalidArgument(WithOurTypeNames(text));
}

}  // namespace fleet::ops
