// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_UNIQUE_NAMES_H_
#define FLEET_PROGRAM_UNIQUE_NAMES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace fleet::program {

// Names that occur once: Generate("fc") gives fc_0, fc_1, and so on. Programs
// that share parameters are built with equal names, so each begins with
// UniqueNames of its own, or all go on with the same. One thread at a time.
class UniqueNames final {
 public:
  // `prefix` stands before every name.
  explicit UniqueNames(std::string prefix = "") : prefix_(std::move(prefix)) {}

  std::string Generate(const std::string& key);

 private:
  const std::string prefix_;
  std::map<std::string, int64_t> counts_;  // of names that were given, by key
};

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_UNIQUE_NAMES_H_
