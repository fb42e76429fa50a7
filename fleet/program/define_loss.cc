// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

bool IsInteger(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kInt32 ||
         dtype == DType::kInt16 || dtype == DType::kInt8 ||
         dtype == DType::kUint8;
}

bool Differ(int64_t a, int64_t b) { return a != b && a >= 0 && b >= 0; }

// What `reduction` makes of losses of shape `dims`.
Result<Dims> Reduced(const OpTypes& t, Dims dims) {
  const std::string& reduction = t.attr<std::string>("reduction");
  if (reduction == "none") return dims;
  if (reduction == "mean" || reduction == "sum") return Dims{1};
  return InvalidArgument("reduction must be 'mean', 'sum' or 'none', but is '",
                         reduction, "'");
}

// The shape of one loss per row of `x`, whose classes lie along `axis`. Checks
// labels that are class numbers: shaped like x without the axis, or with a one
// in its place.
Result<Dims> ClassLossDims(const TensorType& x, const TensorType& label,
                           int64_t axis) {
  if (!IsInteger(label.dtype)) {
    return InvalidArgument("label must be an integer type, not ",
                           Name(label.dtype));
  }
  Dims with_one = x.dims, without = x.dims;
  with_one[axis] = 1;
  without.erase(without.begin() + axis);
  if (without.empty()) without.push_back(1);
  for (const Dims& wanted : {with_one, without}) {
    bool fits = label.dims.size() == wanted.size();
    for (size_t i = 0; fits && i < wanted.size(); ++i) {
      fits = !Differ(label.dims[i], wanted[i]);
    }
    if (fits) return label.dims;
  }
  return InvalidArgument("label has shape ", ToString(label.dims),
                         " but must have ", ToString(without), " or ",
                         ToString(with_one));
}

Result<Dims> SoftLossDims(const TensorType& x, const TensorType& label,
                          int64_t axis) {
  if (!IsFloating(label.dtype)) {
    return InvalidArgument("a soft label must be floating point, not ",
                           Name(label.dtype));
  }
  if (label.dims.size() != x.dims.size()) {
    return InvalidArgument("a soft label must have the shape ",
                           ToString(x.dims), ", not ", ToString(label.dims));
  }
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (Differ(x.dims[i], label.dims[i])) {
      return InvalidArgument("a soft label must have the shape ",
                             ToString(x.dims), ", not ", ToString(label.dims));
    }
  }
  Dims dims = x.dims;
  dims[axis] = 1;
  return dims;
}

Result<Dims> CrossEntropyDims(const OpTypes& t, const TensorType& x) {
  const TensorType& label = t.in("Label");
  if (!IsFloating(x.dtype)) {
    return InvalidArgument("the input must be floating point, not ",
                           Name(x.dtype));
  }
  if (x.dims.empty()) return InvalidArgument("the input has no dimensions");
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  return t.attr<bool>("soft_label") ? SoftLossDims(x, label, axis)
                                    : ClassLossDims(x, label, axis);
}

Status CheckWeight(const OpTypes& t, int64_t num_classes) {
  if (!t.has("Weight")) return OkStatus();
  const TensorType& weight = t.in("Weight");
  if (!Differ(NumElements(weight.dims), num_classes)) return OkStatus();
  return InvalidArgument("weight ", ToString(weight.dims),
                         " must have one number for each of the ", num_classes,
                         " classes");
}

Types CrossEntropyShape(const OpTypes& t) {
  const TensorType& x = t.in("Logits");
  ASSIGN_OR_RETURN(Dims rows, CrossEntropyDims(t, x));
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  RETURN_IF_ERROR(CheckWeight(t, x.dims[axis]));
  ASSIGN_OR_RETURN(Dims dims, Reduced(t, rows));
  bool has_softmax = t.attr<bool>("use_softmax");
  return std::vector<TensorType>{{x.dtype, dims},
                                 {x.dtype, has_softmax ? x.dims : Dims{0}},
                                 {x.dtype, {1}}};
}

Types SoftmaxWithCrossEntropyShape(const OpTypes& t) {
  const TensorType& x = t.in("Logits");
  RETURN_IF_ERROR(CrossEntropyDims(t, x).status());
  ASSIGN_OR_RETURN(int64_t axis, NormalizeAxis(t.attr<int64_t>("axis"),
                                               x.dims.size(), "axis"));
  Dims dims = x.dims;
  dims[axis] = 1;
  return std::vector<TensorType>{x, {x.dtype, dims}};
}

// The old losses: X are probabilities, classes last; a last dimension of one
// stays.
Types RowLossShape(const OpTypes& t, bool soft) {
  const TensorType& x = t.in("X");
  if (!IsFloating(x.dtype)) {
    return InvalidArgument("X must be floating point, not ", Name(x.dtype));
  }
  if (x.dims.empty()) return InvalidArgument("X has no dimensions");
  const auto last = static_cast<int64_t>(x.dims.size()) - 1;
  RETURN_IF_ERROR((soft ? SoftLossDims(x, t.in("Label"), last)
                        : ClassLossDims(x, t.in("Label"), last))
                      .status());
  Dims dims = x.dims;
  dims.back() = 1;
  return std::vector<TensorType>{{x.dtype, dims}};
}

Types OldCrossEntropyShape(const OpTypes& t) {
  return RowLossShape(t, t.attr<bool>("soft_label"));
}

Types CrossEntropy2Shape(const OpTypes& t) {
  ASSIGN_OR_RETURN(std::vector<TensorType> types, RowLossShape(t, false));
  types.push_back(types[0]);
  return types;
}

// Classes lie along axis 1, or along the only axis.
Types NllLossShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (x.dims.empty()) return InvalidArgument("the input has no dimensions");
  int64_t axis = x.dims.size() > 1 ? 1 : 0;
  ASSIGN_OR_RETURN(Dims rows, ClassLossDims(x, t.in("Label"), axis));
  RETURN_IF_ERROR(CheckWeight(t, x.dims[axis]));
  ASSIGN_OR_RETURN(Dims dims, Reduced(t, rows));
  return std::vector<TensorType>{{x.dtype, dims}, {x.dtype, {1}}};
}

// Two tensors by broadcasting, then reduced.
ShapeRule PairLoss(const char* x, const char* y) {
  return [x, y](const OpTypes& t) -> Types {
    ASSIGN_OR_RETURN(Dims pair, BroadcastDims(t.in(x).dims, t.in(y).dims));
    ASSIGN_OR_RETURN(Dims dims, Reduced(t, pair));
    return std::vector<TensorType>{
        {Promote(t.in(x).dtype, t.in(y).dtype), dims}};
  };
}

// Two tensors of one shape; the loss has it too.
ShapeRule SameShapes(const char* x, const char* y) {
  return [x, y](const OpTypes& t) -> Types {
    const TensorType& a = t.in(x);
    const TensorType& b = t.in(y);
    bool fits = a.dims.size() == b.dims.size();
    for (size_t i = 0; fits && i < a.dims.size(); ++i) {
      fits = !Differ(a.dims[i], b.dims[i]);
    }
    if (!fits) {
      return InvalidArgument("input has shape ", ToString(a.dims),
                             " but label has ", ToString(b.dims));
    }
    if (!IsFloating(a.dtype) || !IsFloating(b.dtype)) {
      return InvalidArgument("input and label must be floating point, not ",
                             Name(a.dtype), " and ", Name(b.dtype));
    }
    return std::vector<TensorType>{a};
  };
}

Types CtcShape(const OpTypes& t) {
  const TensorType& x = t.in("Logits");
  if (x.dims.size() != 3) {
    return InvalidArgument(
        "log_probs must have shape [time, batch, classes], "
        "not ",
        ToString(x.dims));
  }
  const Dims& label = t.in("Label").dims;
  if (label.size() != 2 || Differ(label[0], x.dims[1])) {
    return InvalidArgument("labels must have shape [batch, longest], not ",
                           ToString(label));
  }
  for (const char* slot : {"LogitsLength", "LabelLength"}) {
    if (Differ(NumElements(t.in(slot).dims), x.dims[1])) {
      return InvalidArgument(slot, " must have one number for each of the ",
                             x.dims[1], " sequences");
    }
  }
  return std::vector<TensorType>{{x.dtype, {x.dims[1]}},
                                 x,
                                 {x.dtype, {x.dims[1]}},
                                 {x.dtype, {x.dims[1], -1, -1}}};
}

Types NceShape(const OpTypes& t) {
  const TensorType& x = t.in("Input");
  const TensorType& label = t.in("Label");
  const int64_t classes = t.attr<int64_t>("num_total_classes");
  const int64_t count = t.attr<int64_t>("num_neg_samples");
  if (x.dims.size() != 2 || t.in("Weight").dims.size() != 2) {
    return InvalidArgument("Input and Weight must have two dimensions");
  }
  if (Differ(t.in("Weight").dims[0], classes) || classes < 1 || count < 1) {
    return InvalidArgument("Weight ", ToString(t.in("Weight").dims),
                           " with num_total_classes ", classes,
                           " and num_neg_samples ", count);
  }
  if (!IsInteger(label.dtype)) {
    return InvalidArgument("label must be an integer type, not ",
                           Name(label.dtype));
  }
  const int64_t sampler = t.attr<int64_t>("sampler");
  if (sampler < 0 || sampler > 2 ||
      (sampler == 2 && !t.has("CustomDistProbs"))) {
    return InvalidArgument(
        "sampler must be uniform (0), log_uniform (1), or custom_dist (2) "
        "with a distribution, not ",
        sampler);
  }
  const int64_t own = label.dims.size() > 1 ? label.dims[1] : 1;
  const Dims all{x.dims[0], own < 0 ? -1 : own + count};
  return std::vector<TensorType>{
      {x.dtype, {x.dims[0], 1}}, {x.dtype, all}, {DType::kInt64, all}};
}

// ---- loss scaling

Status CheckNumber(const OpTypes& t, const char* slot, DType dtype) {
  const TensorType& type = t.in(slot);
  const int64_t n = NumElements(type.dims);
  if (type.dtype == dtype && (n == 1 || n == -1)) return OkStatus();
  return InvalidArgument(slot, " must be one ", Name(dtype), ", not ",
                         ToString(type));
}

Status CheckGradients(const OpTypes& t) {
  for (const TensorType& x : t.list("X")) {
    if (!IsFloating(x.dtype)) {
      return InvalidArgument("X must be floating point, not ", Name(x.dtype));
    }
  }
  return OkStatus();
}

std::vector<TensorType> AsX(const OpTypes& t) {
  return {t.list("X").begin(), t.list("X").end()};
}

Types UnscaleShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckGradients(t));
  RETURN_IF_ERROR(CheckNumber(t, "Scale", DType::kFloat32));
  std::vector<TensorType> out = AsX(t);
  out.push_back({DType::kBool, {1}});
  return out;
}

Types UpdateScalingShape(const OpTypes& t) {
  RETURN_IF_ERROR(CheckGradients(t));
  RETURN_IF_ERROR(CheckNumber(t, "FoundInfinite", DType::kBool));
  RETURN_IF_ERROR(CheckNumber(t, "PrevLossScaling", DType::kFloat32));
  RETURN_IF_ERROR(CheckNumber(t, "InGoodSteps", DType::kInt32));
  RETURN_IF_ERROR(CheckNumber(t, "InBadSteps", DType::kInt32));
  if (t.has("StopUpdate")) {
    RETURN_IF_ERROR(CheckNumber(t, "StopUpdate", DType::kBool));
  }
  for (const char* name : {"incr_every_n_steps", "decr_every_n_nan_or_inf"}) {
    if (t.attr<int64_t>(name) < 1) {
      return InvalidArgument(name, " must be 1 or more, not ",
                             t.attr<int64_t>(name));
    }
  }
  if (t.attr<double>("incr_ratio") <= 1.0) {
    return InvalidArgument("incr_ratio must be larger than 1, not ",
                           t.attr<double>("incr_ratio"));
  }
  const double decr_ratio = t.attr<double>("decr_ratio");
  if (decr_ratio <= 0.0 || decr_ratio >= 1.0) {
    return InvalidArgument("decr_ratio must lie between 0 and 1, not ",
                           decr_ratio);
  }
  std::vector<TensorType> out = AsX(t);
  for (const char* slot : {"PrevLossScaling", "InGoodSteps", "InBadSteps"}) {
    out.push_back(t.in(slot));
  }
  return out;
}

Types LabelSmoothShape(const OpTypes& t) {
  const TensorType& x = t.in("X");
  if (x.dims.empty() || !IsFloating(x.dtype)) {
    return InvalidArgument("X must be floating point, with classes last");
  }
  if (t.has("PriorDist") &&
      KnownToDiffer(NumElements(t.in("PriorDist").dims), x.dims.back())) {
    return InvalidArgument("PriorDist must have ", x.dims.back(), " elements");
  }
  return std::vector<TensorType>{x};
}

Types HuberShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(t.in("X").dims, t.in("Y").dims));
  if (dims.size() != t.in("X").dims.size()) {
    return InvalidArgument("X and Y must have the same shape");
  }
  TensorType out{t.in("X").dtype, dims};
  return std::vector<TensorType>{out, out};
}

}  // namespace

void DefineLossOps(OpDefiner& ops) {
  // Softmax, logarithm, choice of the label and reduction at once. Mean divides
  // by the weights of the labels that are not ignored, TotalWeight. Without
  // `use_softmax` Logits are probabilities and Softmax is empty.
  ops.Define(
         "cross_entropy_loss(Logits, Label, Weight?; soft_label: bool = false, "
         "ignore_index: int = -100, axis: int = -1, use_softmax: bool = true, "
         "reduction: string = 'mean') -> Loss, Softmax!, TotalWeight!",
         CrossEntropyShape,
         "Logits, Label, Weight, Softmax, TotalWeight, Loss' -> Logits'")
      .Python(
          "nn.functional.loss.cross_entropy(input, label, weight, "
          "ignore_index, reduction, soft_label, axis, use_softmax, name) -> "
          "Loss",
          "-log(softmax(input)) at the label. `label` holds class numbers, "
          "shaped like input without `axis` or with a one there; with "
          "soft_label a distribution, shaped like input. A label equal to "
          "ignore_index does not count. `weight` has one number per class; the "
          "mean is over the weights. Without use_softmax, input holds "
          "probabilities.");
  ops.Define(
      "softmax_with_cross_entropy(Logits, Label; soft_label: bool = false, "
      "ignore_index: int = -100, numeric_stable_mode: bool = true, "
      "axis: int = -1) -> Softmax!, Loss",
      SoftmaxWithCrossEntropyShape, "Logits, Label, Softmax, Loss' -> Logits'");
  // -log of the label's probability, for each row.
  ops.Define(
         "cross_entropy(X, Label; soft_label: bool = false, "
         "ignore_index: int = -100) -> Y",
         OldCrossEntropyShape, "X, Label, Y' -> X'")
      .Python(
          "fluid.layers.loss.cross_entropy(input, label, soft_label, "
          "ignore_index)",
          "-log of the probability of the label, [N, 1]; `input` are "
          "probabilities, not logits.");
  // MatchX: that probability.
  ops.Define("cross_entropy2(X, Label; ignore_index: int = -100) -> Y, MatchX!",
             CrossEntropy2Shape, "X, Label, MatchX, Y' -> X'");
  ops.Define(
         "nll_loss(X, Label, Weight?; ignore_index: int = -100, "
         "reduction: string = 'mean') -> Out, Total_weight!",
         NllLossShape, "X, Label, Weight, Total_weight, Out' -> X'")
      .Python(
          "nn.functional.loss.nll_loss(input, label, weight, ignore_index, "
          "reduction, name) -> Out; NLLLoss(weight, ignore_index, reduction, "
          "name)",
          "-input at the label; input [N, C, ...] holds logarithms of "
          "probabilities.");

  const auto pair_loss = [&](const std::string& name, const std::string& layer,
                             const char* help) -> OpDefiner& {
    return ops
        .Define(name + "(Input, Label; reduction: string = 'mean') -> Out",
                PairLoss("Input", "Label"),
                "Input, Label, Out' -> Input', Label'")
        .Python("nn.functional.loss." + name +
                    "(input, label, reduction, name); " + layer,
                help);
  };
  pair_loss("mse_loss", "MSELoss(reduction)", "(input - label) squared.")
      .Python(
          "nn.functional.loss.square_error_cost(input, label, "
          "reduction:=\"none\")",
          "(input - label) squared, for each element.");
  pair_loss("l1_loss", "L1Loss", "|input - label|.");
  ops.Define(
         "smooth_l1(Input, Label; delta: float = 1.0, "
         "reduction: string = 'mean') -> Out",
         PairLoss("Input", "Label"), "Input, Label, Out' -> Input', Label'")
      .Python(
          "nn.functional.loss.smooth_l1_loss(input, label, reduction, delta, "
          "name); SmoothL1Loss",
          "Half the square of the difference d where it is below delta, beyond "
          "it delta |d| - delta^2 / 2.");
  ops.Define("kldiv_loss(X, Target; reduction: string = 'mean') -> Loss",
             PairLoss("X", "Target"), "X, Target, Loss' -> X', Target'");

  ops.Define("log_loss(Predicted, Labels; epsilon: float = 1e-4) -> Loss",
             SameShapes("Predicted", "Labels"),
             "Predicted, Labels, Loss' -> Predicted', Labels'")
      .Python("nn.functional.loss.log_loss(input, label, epsilon, name)",
              "-label log(input + epsilon) - (1 - label) log(1 - input + "
              "epsilon), for each element.");
  ops.Define("bce_loss(X, Label) -> Out", SameShapes("X", "Label"),
             "X, Label, Out' -> X', Label'");
  ops.Define("sigmoid_cross_entropy_with_logits(X, Label) -> Out",
             SameShapes("X", "Label"), "X, Label, Out' -> X', Label'");

  // Each row against its own classes and `num_neg_samples` that are drawn.
  // SampleLogits: what the sigmoid gives for SampleLabels.
  ops.Define(
      "nce(Input, Label, Weight, Bias?, SampleWeight?, CustomDistProbs?; "
      "num_total_classes: int, num_neg_samples: int = 10, sampler: int = 0, "
      "seed: int = 0, is_sparse: bool = false) -> Cost, SampleLogits!, "
      "SampleLabels!",
      NceShape,
      "Input, Weight, Bias, SampleWeight, CustomDistProbs, SampleLogits, "
      "SampleLabels, Cost' -> Input', Weight', Bias'");

  // Logits [time, batch, classes] are not yet normalised; LogProbs are.
  ops.Define(
      "warpctc(Logits, Label, LogitsLength, LabelLength; blank: int = 0) -> "
      "Loss, LogProbs!, NegLogLikelihood!, Alpha!",
      CtcShape,
      "Label, LogitsLength, LabelLength, LogProbs, NegLogLikelihood, Alpha, "
      "Loss' -> Logits'");

  // Gradients of a loss that was multiplied by Scale, divided by it.
  // FoundInfinite: whether one of them has an infinity or a NaN; then nobody
  // should use them.
  ops.Define("check_finite_and_unscale(X*, Scale) -> Out!*, FoundInfinite!",
             UnscaleShape);
  // The next scaling of the loss: larger after incr_every_n_steps good steps on
  // end, smaller, but not below 1, after decr_every_n_nan_or_inf bad ones. Out
  // is X, or zeros in a bad step.
  ops.Define(
      "update_loss_scaling(X*, FoundInfinite, PrevLossScaling, InGoodSteps, "
      "InBadSteps, StopUpdate?; incr_every_n_steps: int, "
      "decr_every_n_nan_or_inf: int, incr_ratio: float, decr_ratio: float, "
      "stop_update: bool = false) -> Out!*, LossScaling!, OutGoodSteps!, "
      "OutBadSteps!",
      UpdateScalingShape);
  ops.Define("label_smooth(X, PriorDist?; epsilon: float = 0.0) -> Out",
             LabelSmoothShape, "Out' -> X'");
  // Residual: Y - X.
  ops.Define("huber_loss(X, Y; delta: float = 1.0) -> Out, Residual!",
             HuberShape, "Residual, Out' -> X', Y'");
}

void AddLossPrecisions(Precisions& listed) {
  listed.Add(
      Precision::kBlack,
      {"bce_loss", "cross_entropy", "cross_entropy2", "cross_entropy_loss",
       "huber_loss", "kldiv_loss", "l1_loss", "log_loss", "mse_loss",
       "nll_loss", "sigmoid_cross_entropy_with_logits", "smooth_l1",
       "softmax_with_cross_entropy"});
}

}  // namespace fleet::program
