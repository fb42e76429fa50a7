// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/any.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/gpu_kernels.h"
#include "fleet/ops/index_check.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/rows.h"

// Losses of classification. The three ops differ in what their input is
// (logits, probabilities, logarithms of them) and in what becomes of the
// losses; the core works on a matrix with one row per sample and one column per
// class.

namespace fleet::ops {
namespace {

using at::Tensor;

enum class InputIs { kLogits, kProbabilities, kLogProbabilities };

// A call reduced to its matrix.
struct Problem {
  Tensor x;       // [rows, classes]
  Tensor label;   // [rows] int64, or [rows, classes] if soft
  Tensor weight;  // [classes] or undefined
  InputIs input_is = InputIs::kLogits;
  bool soft = false;
  int64_t ignore_index = -100;

  int64_t rows() const { return x.size(0); }
  int64_t classes() const { return x.size(1); }
};

struct Losses {
  Tensor rows;          // [rows], weighted; undefined if `want_sum`
  Tensor sum;           // [1]; only if `want_sum`
  Tensor softmax;       // [rows, classes]; only for logits
  Tensor total_weight;  // [1]
};

// [.., classes, ..] as [rows, classes].
Tensor AsRows(const Tensor& x, int64_t axis) {
  int64_t classes = x.size(axis);
  Tensor moved = axis == x.dim() - 1 ? x : x.movedim(axis, -1);
  if (moved.dim() == 2) return moved;
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < moved.dim(); ++i) rows *= moved.size(i);
  return moved.reshape({rows, classes});
}

// The inverse of AsRows() for a tensor of the shape of `like`.
Tensor FromRows(const Tensor& rows, const Tensor& like, int64_t axis) {
  if (like.dim() == 2 && axis == 1) return rows;
  std::vector<int64_t> moved(like.sizes().begin(), like.sizes().end());
  moved.erase(moved.begin() + axis);
  moved.push_back(like.size(axis));
  Tensor shaped = rows.reshape(moved);
  return axis == like.dim() - 1 ? shaped : shaped.movedim(-1, axis);
}

Problem MakeProblem(const Tensor& x, const Tensor& label, const Tensor& weight,
                    bool soft, int64_t axis, int64_t ignore_index,
                    InputIs input_is) {
  TORCH_CHECK(at::isFloatingType(x.scalar_type()), "input must be floating");
  Problem p{.x = AsRows(x, axis), .weight = weight, .input_is = input_is};
  p.soft = soft;
  p.ignore_index = ignore_index;
  TORCH_CHECK(!weight.defined() || weight.numel() == p.classes(),
              "weight must have one element for each class");
  if (soft) {
    TORCH_CHECK(label.sizes() == x.sizes() && label.is_floating_point(),
                "a soft label must have the shape of the input");
    p.label = AsRows(label, axis).to(x.scalar_type());
    return p;
  }
  TORCH_CHECK(at::isIntegralType(label.scalar_type(), false),
              "label must be an integer type");
  bool has_axis = label.dim() == x.dim() && label.size(axis) == 1;
  TORCH_CHECK(label.numel() == p.rows() &&
                  (has_axis || label.dim() == x.dim() - 1 || x.dim() == 1),
              "label and input have different batches");
  p.label = label.scalar_type() == at::kLong ? label : label.to(at::kLong);
  // With the axis in place, flattening keeps the order of the rows: what
  // AsRows() moves to the back has length one.
  if (p.label.dim() != 1) p.label = p.label.reshape({-1});
  return p;
}

void FailOnLabel(int64_t label, int64_t row, int64_t classes) {
  TORCH_CHECK(false, "label ", label, " at row ", row, " is outside [0, ",
              classes, ")");
}

// Labels outside fail, or count as ignored where that comes out late.
void CheckLabels(Problem& p) {
  if (p.label.device().is_cpu()) {
    Tensor flat = p.label.contiguous();
    const int64_t* label = flat.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < p.rows(); ++i) {
      bool good = label[i] == p.ignore_index ||
                  (label[i] >= 0 && label[i] < p.classes());
      if (!good) FailOnLabel(label[i], i, p.classes());
    }
    return;
  }
  if (LateChecks* late = LateChecks::Of(p.label.device())) {
    p.label =
        GpuCheckRange(p.label.contiguous(), 0, p.classes(), p.ignore_index,
                      p.ignore_index, late->Add("label", 0, p.classes()));
    return;
  }
  // An index outside would kill the device's context, so this waits for it.
  Tensor bad = at::logical_or(p.label < 0, p.label >= p.classes());
  bad = at::logical_and(bad, p.label != p.ignore_index);
  if (!at::any(bad).item<bool>()) return;
  int64_t row = at::nonzero(bad)[0].item<int64_t>();
  FailOnLabel(p.label[row].item<int64_t>(), row, p.classes());
}

// ---- bare floats

// Whether rows.h has the loss for such an input; makes it one behind the other.
bool TakesFastPath(Problem& p, InputIs kind) {
  if (!FastOnCpu(p.x) || p.input_is != kind || p.soft || p.weight.defined() ||
      !p.label.device().is_cpu() || p.classes() == 0) {
    return false;
  }
  p.x = p.x.contiguous();
  p.label = p.label.contiguous();
  return true;
}

Matrix SizeOf(const Problem& p) { return {p.rows(), p.classes()}; }

Labels LabelsOf(const Problem& p) {
  return {p.label.const_data_ptr<int64_t>(), p.ignore_index};
}

// The losses, [rows] or [1], the softmax and the weight of all rows.
std::tuple<Tensor, Tensor, Tensor> FastForward(const Problem& p,
                                               LossReduction reduction) {
  Tensor softmax = at::empty({p.rows(), p.classes()}, p.x.options());
  Tensor total = at::empty({1}, p.x.options());
  Tensor each = at::empty({p.rows()}, p.x.options());
  Tensor loss =
      reduction == LossReduction::kNone ? each : at::empty({1}, p.x.options());
  ReducedCrossEntropyRows(
      SizeOf(p), p.x.const_data_ptr<float>(), LabelsOf(p), reduction,
      softmax.mutable_data_ptr<float>(), each.mutable_data_ptr<float>(),
      loss.mutable_data_ptr<float>(), total.mutable_data_ptr<float>());
  return {loss, softmax, total};
}

Tensor FastBackward(const Problem& p, const Tensor& softmax,
                    LossReduction reduction, const Tensor& total,
                    const Tensor& dloss) {
  Tensor dx = at::empty({p.rows(), p.classes()}, p.x.options());
  CrossEntropyRowsGrad(
      SizeOf(p), softmax.expect_contiguous()->const_data_ptr<float>(),
      LabelsOf(p), reduction,
      total.defined() ? total.const_data_ptr<float>() : nullptr,
      dloss.expect_contiguous()->const_data_ptr<float>(),
      dx.mutable_data_ptr<float>());
  return dx;
}

// ---- a GPU, with kernels of our own

bool TakesGpuPath(const Problem& p) {
  return p.x.device().is_cuda() && p.label.device() == p.x.device() &&
         p.x.scalar_type() == at::kFloat && p.input_is == InputIs::kLogits &&
         !p.soft && !p.weight.defined() && p.rows() > 0 && p.classes() > 0 &&
         HasGpuKernels(p.x.device());
}

// Not when the kernel is being differentiated itself.
bool TakesGpuGrad(const Problem& p, const Tensor& logits, const Tensor& dloss) {
  return TakesGpuPath(p) && dloss.scalar_type() == at::kFloat &&
         dloss.device() == p.x.device() &&
         !(Recording() && (logits.requires_grad() || dloss.requires_grad()));
}

GpuReduction GpuReductionOf(const std::string& reduction) {
  if (reduction == "none") return GpuReduction::kNone;
  return reduction == "mean" ? GpuReduction::kMean : GpuReduction::kSum;
}

GpuLosses GpuForward(const Problem& p, GpuReduction reduction) {
  LateChecks* late = LateChecks::Of(p.x.device());
  Tensor note =
      late == nullptr ? NewNotes(1) : late->Add("label", 0, p.classes());
  GpuLosses losses = GpuCrossEntropy(p.x.contiguous(), p.label.contiguous(),
                                     p.ignore_index, reduction, note);
  if (late != nullptr) return losses;
  WaitForGpu(p.x.device());
  RangeNote found;
  if (TakeNote(note, &found)) {
    FailOnLabel(found.value, found.position, p.classes());
  }
  return losses;
}

// ---- ATen

// The labels with every ignored one replaced by class 0.
Tensor SafeLabel(const Problem& p) {
  return at::where(p.label == p.ignore_index, at::zeros_like(p.label), p.label);
}

// How much each row counts, [rows].
Tensor RowWeights(const Problem& p) {
  if (p.soft) {
    return p.weight.defined() ? at::matmul(p.label, p.weight.reshape({-1}))
                              : at::ones_like(p.label.select(1, 0));
  }
  Tensor counts = (p.label != p.ignore_index).to(p.x.scalar_type());
  if (!p.weight.defined()) return counts;
  return counts * at::index_select(p.weight.reshape({-1}), 0, SafeLabel(p));
}

Losses Forward(Problem p, bool want_sum) {
  if (TakesGpuPath(p)) {
    GpuLosses gpu =
        GpuForward(p, want_sum ? GpuReduction::kSum : GpuReduction::kNone);
    return {.rows = want_sum ? Tensor() : gpu.loss,
            .sum = want_sum ? gpu.loss : Tensor(),
            .softmax = gpu.softmax,
            .total_weight = gpu.total_weight};
  }
  if (!p.soft) CheckLabels(p);
  Losses out;
  Tensor log_p = p.x;
  if (p.input_is == InputIs::kLogits) {
    log_p = at::_log_softmax(p.x, 1, false);
    out.softmax = at::exp(log_p);
  } else if (p.input_is == InputIs::kProbabilities) {
    log_p = at::log(p.x);
  }
  Tensor loss =
      p.soft ? -at::sum(p.label * log_p, {1})
             : -at::gather(log_p, 1, SafeLabel(p).unsqueeze(1)).squeeze(1);
  Tensor weights = RowWeights(p);
  out.rows = at::where(weights == 0, at::zeros_like(loss), loss * weights);
  out.total_weight = at::sum(weights).reshape({1});
  if (want_sum) out.sum = at::sum(out.rows).reshape({1});
  return out;
}

// `upstream` is the gradient of each row's unweighted loss times its weight, or
// of their sum: [rows] or [1].
Tensor Backward(Problem p, const Tensor& softmax, const Tensor& upstream) {
  // Otherwise the forward kernel has failed.
  if (!p.soft && LateChecks::Of(p.label.device()) != nullptr) CheckLabels(p);
  Tensor g = (upstream * RowWeights(p)).unsqueeze(1);
  if (p.soft) {
    if (p.input_is == InputIs::kProbabilities) return -g * p.label / p.x;
    return g * (softmax * at::sum(p.label, {1}, true) - p.label);
  }
  Tensor index = SafeLabel(p).unsqueeze(1);
  Tensor base =
      p.input_is == InputIs::kLogits ? softmax * g : at::zeros_like(p.x);
  Tensor minus = -g;
  if (p.input_is == InputIs::kProbabilities) {
    minus = minus / at::gather(p.x, 1, index);
  }
  return at::scatter_add(base, 1, index, minus);
}

// The softmax to differentiate: the saved one carries no history, so a second
// derivative needs it as a function of the logits.
Tensor SoftmaxForGrad(const Problem& p, const Tensor& logits, int64_t axis,
                      const Tensor& saved) {
  if (p.input_is != InputIs::kLogits) return {};
  if (Recording() && logits.requires_grad()) return at::softmax(p.x, 1);
  return AsRows(saved, axis);
}

// ---- the ops

int64_t Wrapped(int64_t axis, const Tensor& x) {
  TORCH_CHECK(axis >= -x.dim() && axis < x.dim(), "no axis ", axis);
  return axis < 0 ? axis + x.dim() : axis;
}

InputIs KindOf(bool use_softmax) {
  return use_softmax ? InputIs::kLogits : InputIs::kProbabilities;
}

// One loss per row in the shape of `x` with a one in place of the classes.
Tensor KeepAxis(const Tensor& rows, const Tensor& x, int64_t axis) {
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape[axis] = 1;
  return rows.reshape(shape);
}

bool WantsSum(const std::string& reduction) {
  return ReadReduction(reduction) != LossReduction::kNone;
}

// The sum over the weight; zero if nothing counted.
Tensor Mean(const Tensor& sum, const Tensor& total) {
  if (FastOnCpu(sum, total)) {
    float* value = sum.mutable_data_ptr<float>();
    float weight = *total.const_data_ptr<float>();
    if (weight != 0) *value /= weight;
    return sum;
  }
  return sum / at::where(total == 0, at::ones_like(total), total);
}

// What reaches each row through the reduction: [rows] or [1].
Tensor Upstream(const Tensor& dloss, const Tensor& total,
                const std::string& reduction) {
  if (reduction == "none") return dloss.reshape({-1});
  if (reduction == "sum") return dloss;
  return dloss / at::where(total == 0, at::ones_like(total), total);
}

std::tuple<Tensor, Tensor, Tensor> CrossEntropy(const Tensor& logits,
                                                const Tensor& label,
                                                const Tensor& weight, bool soft,
                                                int64_t ignore_index,
                                                int64_t axis, bool use_softmax,
                                                const std::string& reduction) {
  axis = Wrapped(axis, logits);
  Problem p = MakeProblem(logits, label, weight, soft, axis, ignore_index,
                          KindOf(use_softmax));
  if (TakesFastPath(p, InputIs::kLogits)) {
    auto [loss, softmax, total] = FastForward(p, ReadReduction(reduction));
    return {reduction == "none" ? loss.reshape(label.sizes()) : loss,
            FromRows(softmax, logits, axis), total};
  }
  if (WantsSum(reduction) && TakesGpuPath(p)) {
    GpuLosses losses = GpuForward(p, GpuReductionOf(reduction));
    return {losses.loss, FromRows(losses.softmax, logits, axis),
            losses.total_weight};
  }
  Losses losses = Forward(p, WantsSum(reduction));
  Tensor loss;
  if (reduction == "none") {
    loss = soft ? KeepAxis(losses.rows, logits, axis)
                : losses.rows.reshape(label.sizes());
  } else {
    loss =
        reduction == "sum" ? losses.sum : Mean(losses.sum, losses.total_weight);
  }
  Tensor softmax = use_softmax ? FromRows(losses.softmax, logits, axis)
                               : at::empty({0}, logits.options());
  return {loss, softmax, losses.total_weight};
}

Tensor CrossEntropyGrad(const Tensor& logits, const Tensor& label,
                        const Tensor& weight, const Tensor& softmax,
                        const Tensor& total, const Tensor& dloss, bool soft,
                        int64_t ignore_index, int64_t axis, bool use_softmax,
                        const std::string& reduction) {
  axis = Wrapped(axis, logits);
  Problem p = MakeProblem(logits, label, weight, soft, axis, ignore_index,
                          KindOf(use_softmax));
  if (FastOnCpu(dloss, softmax) && TakesFastPath(p, InputIs::kLogits)) {
    Tensor dx = FastBackward(p, AsRows(softmax, axis), ReadReduction(reduction),
                             total, dloss);
    return FromRows(dx, logits, axis);
  }
  if (TakesGpuGrad(p, logits, dloss)) {
    Tensor dx = GpuCrossEntropyGrad(
        AsRows(softmax, axis).contiguous(), p.label.contiguous(), total,
        dloss.contiguous(), ignore_index, GpuReductionOf(reduction));
    return FromRows(dx, logits, axis);
  }
  Tensor dx = Backward(p, SoftmaxForGrad(p, logits, axis, softmax),
                       Upstream(dloss, total, reduction));
  return FromRows(dx, logits, axis);
}

std::tuple<Tensor, Tensor> SoftmaxWithCrossEntropy(const Tensor& logits,
                                                   const Tensor& label,
                                                   bool soft,
                                                   int64_t ignore_index, bool,
                                                   int64_t axis) {
  axis = Wrapped(axis, logits);
  Problem p = MakeProblem(logits, label, {}, soft, axis, ignore_index,
                          InputIs::kLogits);
  if (TakesFastPath(p, InputIs::kLogits)) {
    auto [loss, probabilities, total] = FastForward(p, LossReduction::kNone);
    return {FromRows(probabilities, logits, axis),
            KeepAxis(loss, logits, axis)};
  }
  Losses losses = Forward(p, false);
  return {FromRows(losses.softmax, logits, axis),
          KeepAxis(losses.rows, logits, axis)};
}

Tensor SoftmaxWithCrossEntropyGrad(const Tensor& logits, const Tensor& label,
                                   const Tensor& softmax, const Tensor& dloss,
                                   bool soft, int64_t ignore_index, bool,
                                   int64_t axis) {
  axis = Wrapped(axis, logits);
  Problem p = MakeProblem(logits, label, {}, soft, axis, ignore_index,
                          InputIs::kLogits);
  Tensor upstream = dloss.reshape({-1});
  if (FastOnCpu(dloss, softmax) && TakesFastPath(p, InputIs::kLogits)) {
    Tensor dx = FastBackward(p, AsRows(softmax, axis), LossReduction::kNone, {},
                             upstream);
    return FromRows(dx, logits, axis);
  }
  if (TakesGpuGrad(p, logits, dloss)) {
    // Nothing is divided here, so the weight is never looked at.
    Tensor dx = GpuCrossEntropyGrad(
        AsRows(softmax, axis).contiguous(), p.label.contiguous(), dloss,
        upstream.contiguous(), ignore_index, GpuReduction::kNone);
    return FromRows(dx, logits, axis);
  }
  Tensor dx = Backward(p, SoftmaxForGrad(p, logits, axis, softmax), upstream);
  return FromRows(dx, logits, axis);
}

Problem NllProblem(const Tensor& x, const Tensor& label, const Tensor& weight,
                   int64_t ignore_index) {
  return MakeProblem(x, label, weight, false, x.dim() > 1 ? 1 : 0, ignore_index,
                     InputIs::kLogProbabilities);
}

std::tuple<Tensor, Tensor> NllLoss(const Tensor& x, const Tensor& label,
                                   const Tensor& weight, int64_t ignore_index,
                                   const std::string& reduction) {
  Problem p = NllProblem(x, label, weight, ignore_index);
  Losses losses = Forward(p, WantsSum(reduction));
  Tensor loss = losses.sum;
  if (reduction == "none") loss = losses.rows.reshape(label.sizes());
  if (reduction == "mean") loss = Mean(losses.sum, losses.total_weight);
  return {loss, losses.total_weight};
}

Tensor NllLossGrad(const Tensor& x, const Tensor& label, const Tensor& weight,
                   const Tensor& total, const Tensor& dout,
                   int64_t ignore_index, const std::string& reduction) {
  Problem p = NllProblem(x, label, weight, ignore_index);
  Tensor dx = Backward(p, {}, Upstream(dout, total, reduction));
  return FromRows(dx, x, x.dim() > 1 ? 1 : 0);
}

// ---- the older ops: probabilities in, a loss for each row out

Problem RowProblem(const Tensor& x, const Tensor& label, bool soft,
                   int64_t ignore_index) {
  TORCH_CHECK(x.dim() > 0, "X has no dimensions");
  return MakeProblem(x, label, {}, soft, x.dim() - 1, ignore_index,
                     InputIs::kProbabilities);
}

Tensor RowLosses(const Tensor& x, const Tensor& label, bool soft,
                 int64_t ignore_index) {
  Problem p = RowProblem(x, label, soft, ignore_index);
  if (!TakesFastPath(p, InputIs::kProbabilities)) {
    return KeepAxis(Forward(p, false).rows, x, x.dim() - 1);
  }
  Tensor loss = at::empty({p.rows()}, p.x.options());
  LogLossRows(SizeOf(p), p.x.const_data_ptr<float>(), LabelsOf(p),
              loss.mutable_data_ptr<float>());
  return KeepAxis(loss, x, x.dim() - 1);
}

Tensor RowLossesGrad(const Tensor& x, const Tensor& label, const Tensor& dy,
                     bool soft, int64_t ignore_index) {
  Problem p = RowProblem(x, label, soft, ignore_index);
  const Tensor upstream = dy.reshape({-1});
  if (!FastOnCpu(upstream) || !TakesFastPath(p, InputIs::kProbabilities)) {
    return FromRows(Backward(p, {}, upstream), x, x.dim() - 1);
  }
  Tensor dx = at::empty({p.rows(), p.classes()}, p.x.options());
  LogLossRowsGrad(SizeOf(p), p.x.const_data_ptr<float>(), LabelsOf(p),
                  upstream.expect_contiguous()->const_data_ptr<float>(),
                  dx.mutable_data_ptr<float>());
  return FromRows(dx, x, x.dim() - 1);
}

std::tuple<Tensor, Tensor> CrossEntropy2(const Tensor& x, const Tensor& label,
                                         int64_t ignore_index) {
  Tensor loss = RowLosses(x, label, false, ignore_index);
  return {loss, at::exp(-loss)};
}

Tensor CrossEntropy2Grad(const Tensor& x, const Tensor& label, const Tensor&,
                         const Tensor& dy, int64_t ignore_index) {
  return RowLossesGrad(x, label, dy, false, ignore_index);
}

}  // namespace

void AddCrossEntropyKernels(KernelTable& k) {
  k.Add<CrossEntropy, CrossEntropyGrad>("cross_entropy_loss");
  k.Add<SoftmaxWithCrossEntropy, SoftmaxWithCrossEntropyGrad>(
      "softmax_with_cross_entropy");
  k.Add<NllLoss, NllLossGrad>("nll_loss");
  k.Add<RowLosses, RowLossesGrad>("cross_entropy");
  k.Add<CrossEntropy2, CrossEntropy2Grad>("cross_entropy2");
}

}  // namespace fleet::ops
