// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_crf.h"

#include <string>

#include "fleet/program/shape_rules.h"

// Conditional random fields over chains of tags. Emission scores each tag of
// each row: the rows of all sequences one behind the other, [rows, tags], with
// offsets in EmissionLod; or [sequences, longest, tags] with the number of rows
// of each sequence in Length, what lies behind being padding. Transition
// [tags + 2, tags]: row 0 scores the first tag, row 1 the last, and row i + 2
// the step from tag i to each other.

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

// `label` has one number for each row of the emission.
Status CheckLabel(const Dims& label, const Dims& emission) {
  const size_t rows = emission.size() - 1;
  bool fits = label.size() == rows ||
              (label.size() == rows + 1 && !KnownToDiffer(label[rows], 1));
  for (size_t i = 0; fits && i < rows; ++i) {
    fits = !KnownToDiffer(label[i], emission[i]);
  }
  if (fits) return OkStatus();
  return InvalidArgument("Label ", ToString(label),
                         " must have one tag for each row of Emission ",
                         ToString(emission));
}

Status CheckTransition(const Dims& transition, int64_t tags) {
  bool fits = transition.size() == 2 && !KnownToDiffer(transition[1], tags) &&
              (transition[0] < 0 || transition[1] < 0 ||
               transition[0] == transition[1] + 2);
  if (fits) return OkStatus();
  return InvalidArgument("Transition ", ToString(transition),
                         " must have shape [tags + 2, tags] for ", tags,
                         " tags");
}

Status CheckInteger(const OpTypes& t, const char* slot) {
  if (!t.has(slot) || !IsFloating(t.in(slot).dtype)) return OkStatus();
  return InvalidArgument(slot, " must have an integer type, not ",
                         ToString(t.in(slot)));
}

// The number of sequences; all slots fit each other.
Result<int64_t> CheckChains(const OpTypes& t) {
  const Dims& emission = t.in("Emission").dims;
  const bool padded = t.has("Length");
  if (!padded && !t.has("EmissionLod")) {
    return InvalidArgument(
        "Emission ", ToString(emission),
        " is no sequence: it must come from data with lod_level=1, or have "
        "shape [sequences, longest, tags] and come with Length");
  }
  if (emission.size() != (padded ? 3 : 2)) {
    return InvalidArgument(
        "Emission must have shape ",
        padded ? "[sequences, longest, tags]" : "[rows, tags]", ", not ",
        ToString(emission));
  }
  RETURN_IF_ERROR(CheckInteger(t, "Label"));
  RETURN_IF_ERROR(CheckInteger(t, "Length"));
  RETURN_IF_ERROR(CheckTransition(t.in("Transition").dims, emission.back()));
  if (t.has("Label")) {
    RETURN_IF_ERROR(CheckLabel(t.in("Label").dims, emission));
  }
  if (!padded) {
    const int64_t n = NumElements(t.in("EmissionLod").dims);
    return n < 1 ? -1 : n - 1;
  }
  const int64_t lengths = NumElements(t.in("Length").dims);
  if (KnownToDiffer(lengths, emission[0])) {
    return InvalidArgument("Length has ", lengths, " numbers for ", emission[0],
                           " sequences");
  }
  return emission[0];
}

Types ChainShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(int64_t sequences, CheckChains(t));
  const TensorType& emission = t.in("Emission");
  if (!IsFloating(emission.dtype)) {
    return InvalidArgument("Emission must have a floating type, not ",
                           ToString(emission));
  }
  return std::vector<TensorType>{emission,
                                 emission,
                                 {emission.dtype, t.in("Transition").dims},
                                 {emission.dtype, {sequences, 1}}};
}

Types DecodingShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckChains(t).status());
  const Dims& emission = t.in("Emission").dims;
  Dims dims{emission[0], t.has("Length") ? emission[1] : 1};
  return std::vector<TensorType>{{DType::kInt64, dims}};
}

}  // namespace

void DefineCrfOps(OpDefiner& ops) {
  // LogLikelihood: for each sequence minus the logarithm of the probability of
  // its labels, a cost. The others are what the way there left: the share of
  // each tag among all ways that end in it, and exponents of the scores, those
  // of a row relative to its largest.
  ops.Define(
      "linear_chain_crf(Emission, Transition, Label, Length?, EmissionLod?) -> "
      "Alpha!, EmissionExps!, TransitionExps!, LogLikelihood",
      ChainShape,
      "Emission, Transition, Label, Length, EmissionLod, LogLikelihood' -> "
      "Emission', Transition'");
  // The tags of the best way through each sequence; with Label 1 where they
  // are the label and 0 elsewhere. 0 in padding.
  ops.Define(
      "crf_decoding(Emission, Transition, Label?, Length?, EmissionLod?) -> "
      "ViterbiPath!",
      DecodingShape);
}

}  // namespace fleet::program
