// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/unique_names.h"

namespace fleet::program {

std::string UniqueNames::Generate(const std::string& key) {
  return prefix_ + key + '_' + std::to_string(counts_[key]++);
}

}  // namespace fleet::program
