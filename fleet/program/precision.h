// SPDX-License-Identifier: Apache-2.0

// Which ops compute in float16 or bfloat16 in mixed precision: what the groups
// of definitions say (define_ops.h), and what a user says otherwise.

#ifndef FLEET_PROGRAM_PRECISION_H_
#define FLEET_PROGRAM_PRECISION_H_

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace fleet::program {

// What an op does in mixed precision.
enum class Precision {
  kUnlisted,     // computes in float32
  kWhite,        // in the short type: where the time goes
  kGray,         // goes along with what it reads
  kBlack,        // in float32: it leaves a short type's range, or adds up much
  kBlackAlways,  // the same at any level: slower in a short type
};

// How far mixed precision goes; Paddle's names are in quotes.
enum class AmpLevel {
  kNone,    // "O0": nothing computes in the short type
  kWhite,   // "OD": the white ops alone
  kByList,  // "O1": the white ops, and the gray ones that go along
  kAll,     // "O2": all listed ops but those that are always black
};

// What an op does with that precision at a level.
enum class Computes {
  kShort,      // in the short type
  kGoesAlong,  // in the short type if an input is of it and none of float32
  kFloat32,
};

// Precisions that differ from those of the definitions, by name of the op.
using CustomPrecisions = std::map<std::string, Precision, std::less<>>;

// What ops do, by name; one that is not there is kUnlisted.
class Precisions final {
 public:
  // A name that is there already aborts.
  void Add(Precision precision, std::initializer_list<std::string_view> names);
  // What `custom` says, else what was added.
  Precision Of(std::string_view op, const CustomPrecisions& custom = {}) const;
  const CustomPrecisions& listed() const { return listed_; }

 private:
  CustomPrecisions listed_;
};

// Those of all ops; made at the first call, then only read.
const Precisions& DefinedPrecisions();

// With `promote`, the ops that level kAll adds to the white ones go along
// instead of computing in the short type always.
Computes AtLevel(Precision precision, AmpLevel level, bool promote);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_PRECISION_H_
