// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/precision.h"

#include "fleet/base/check.h"
#include "fleet/base/no_destructor.h"
#include "fleet/program/define_ops.h"

namespace fleet::program {

void Precisions::Add(Precision precision,
                     std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const bool added = listed_.emplace(name, precision).second;
    FLEET_CHECK(added, "the precision of ", name, " is said twice");
  }
}

Precision Precisions::Of(std::string_view op,
                         const CustomPrecisions& custom) const {
  for (const CustomPrecisions* map : {&custom, &listed_}) {
    const auto found = map->find(op);
    if (found != map->end()) return found->second;
  }
  return Precision::kUnlisted;
}

const Precisions& DefinedPrecisions() {
  static base::NoDestructor<Precisions> listed([] {
    Precisions made;
    AddAllPrecisions(made);
    return made;
  }());
  return *listed;
}

Computes AtLevel(Precision precision, AmpLevel level, bool promote) {
  const bool white = precision == Precision::kWhite;
  const bool gray = precision == Precision::kGray;
  const bool black = precision == Precision::kBlack;
  switch (level) {
    case AmpLevel::kNone:
      return Computes::kFloat32;
    case AmpLevel::kWhite:
      return white ? Computes::kShort : Computes::kFloat32;
    case AmpLevel::kByList:
      if (gray) return Computes::kGoesAlong;
      return white ? Computes::kShort : Computes::kFloat32;
    case AmpLevel::kAll:
      if (gray || black) {
        return promote ? Computes::kGoesAlong : Computes::kShort;
      }
      return white ? Computes::kShort : Computes::kFloat32;
  }
  return Computes::kFloat32;
}

}  // namespace fleet::program
