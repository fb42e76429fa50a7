// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

int64_t NumGates(const std::string& mode) {
  if (mode == "LSTM") return 4;
  if (mode == "GRU") return 3;
  return mode == "RNN_TANH" || mode == "RNN_RELU" ? 1 : 0;
}

Status CheckDims(const Dims& given, const Dims& wanted,
                 const std::string& what) {
  if (CanBeOne(given, wanted)) return OkStatus();
  return InvalidArgument(what, " has shape ", ToString(given),
                         " but must have ", ToString(wanted));
}

Status CheckWeights(const OpTypes& t, int64_t input_size) {
  auto weights = t.list("WeightList");
  int64_t hidden = t.attr<int64_t>("hidden_size");
  int64_t layers = t.attr<int64_t>("num_layers");
  int64_t directions = t.attr<bool>("is_bidirec") ? 2 : 1;
  int64_t rows = NumGates(t.attr<std::string>("mode")) * hidden;
  auto cells = static_cast<size_t>(layers * directions);
  if (weights.size() != 4 * cells && weights.size() != 2 * cells) {
    return InvalidArgument("WeightList has ", weights.size(), " tensors for ",
                           cells,
                           " cells; it takes two weights each, then two "
                           "biases each or none");
  }
  for (size_t i = 0; i < cells; ++i) {
    int64_t width =
        i < static_cast<size_t>(directions) ? input_size : hidden * directions;
    std::string cell = " of cell " + std::to_string(i);
    RETURN_IF_ERROR(
        CheckDims(weights[2 * i].dims, {rows, width}, "weight_ih" + cell));
    RETURN_IF_ERROR(
        CheckDims(weights[2 * i + 1].dims, {rows, hidden}, "weight_hh" + cell));
    if (weights.size() == 2 * cells) continue;
    for (size_t k = 0; k < 2; ++k) {
      RETURN_IF_ERROR(CheckDims(weights[2 * cells + 2 * i + k].dims, {rows},
                                (k == 0 ? "bias_ih" : "bias_hh") + cell));
    }
  }
  return OkStatus();
}

Result<std::vector<TensorType>> RnnShape(const OpTypes& t) {
  const TensorType& x = t.in("Input");
  const std::string& mode = t.attr<std::string>("mode");
  int64_t hidden = t.attr<int64_t>("hidden_size");
  int64_t layers = t.attr<int64_t>("num_layers");
  int64_t directions = t.attr<bool>("is_bidirec") ? 2 : 1;
  if (NumGates(mode) == 0) {
    return InvalidArgument(
        "mode must be 'LSTM', 'GRU', 'RNN_TANH' or 'RNN_RELU', not '", mode,
        "'");
  }
  if (x.dims.size() != 3) {
    return InvalidArgument(
        "the input must have shape [time, batch, size], "
        "not ",
        ToString(x.dims));
  }
  Dims state{layers * directions, x.dims[1], hidden};
  auto states = t.list("PreState");
  size_t wanted = mode == "LSTM" ? 2 : 1;
  if (states.size() != wanted) {
    return InvalidArgument(mode, " starts from ", wanted, " states, not ",
                           states.size());
  }
  for (const TensorType& given : states) {
    RETURN_IF_ERROR(CheckDims(given.dims, state, "the initial state"));
  }
  RETURN_IF_ERROR(CheckWeights(t, x.dims[2]));
  if (t.has("SequenceLength")) {
    RETURN_IF_ERROR(
        CheckDims(t.in("SequenceLength").dims, {x.dims[1]}, "sequence_length"));
  }
  std::vector<TensorType> out{
      {x.dtype, {x.dims[0], x.dims[1], directions * hidden}}};
  out.insert(out.end(), wanted, {x.dtype, state});
  out.push_back({x.dtype, {-1}});
  return out;
}

}  // namespace

void DefineRnnOps(OpDefiner& ops) {
  // Input [time, batch, size]; PreState: h, and c for an LSTM, each [layers *
  // directions, batch, hidden]. A cell is one layer in one direction: layer 0
  // forwards, layer 0 backwards, layer 1 forwards and so on. WeightList: for
  // each cell weight_ih [gates * hidden, size] and weight_hh [gates * hidden,
  // hidden], then for each cell bias_ih and bias_hh, or none at all. Gates are
  // in the order i f c o (LSTM), r z c (GRU). Past a sequence's length Out is
  // zero and states stay. Reserve is what the gradient needs.
  ops.Define(
      "rnn(Input, PreState*, WeightList*, SequenceLength?; "
      "mode: string = 'LSTM', hidden_size: int, num_layers: int = 1, "
      "is_bidirec: bool = false, dropout_prob: float = 0.0, "
      "is_test: bool = false) -> Out, State*, Reserve!",
      RnnShape,
      "Input, PreState, WeightList, SequenceLength, Reserve, Out', State' -> "
      "Input', PreState', WeightList'");
}

}  // namespace fleet::program
