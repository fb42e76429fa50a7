// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "fleet/ops/elementwise.h"
#include "fleet/ops/kernels.h"

// The forms over bare memory of sums, differences, products and scaling, which
// binary_kernels.cc computes. In a plan that fuses, those beside each other
// become chains (exec/plan_chains.cc). A chain of one is as fast, but for
// LinearNet, whose gradients of biases take 5 % of its step more; and chains
// refuse operands that share memory under several names.

namespace fleet::ops {
namespace {

// ---- one operand

bool ScaleForm(BareCall& c) {
  const int x = c.In(0), y = c.Out(0);
  if (c.num_slots() != 1 || !c.AreFloat({x, y})) return false;
  const Affine affine{static_cast<float>(c.attr<double>("scale")),
                      static_cast<float>(c.attr<double>("bias")),
                      c.attr<bool>("bias_after_scale")};
  return c.Run({x}, [=, n = c.numel(x)](void* const* m) {
    affine(n, FloatIn(m, x), FloatOut(m, y));
  });
}

bool ScaleGradForm(BareCall& c) {
  const int dy = c.In(0), dx = c.Out(0);
  if (c.num_slots() != 1 || !c.AreFloat({dy, dx})) return false;
  const Affine affine{static_cast<float>(c.attr<double>("scale")), 0, true};
  const auto up = c.Constant(dy);
  if (up && c.Fill(dx, *up * affine.factor)) return true;
  return c.Run({dy}, [=, n = c.numel(dy)](void* const* m) {
    affine(n, FloatIn(m, dy), FloatOut(m, dx));
  });
}

// ---- two operands

ImageLayout PairLayout(const BareCall& c) {
  const int x = c.In(0), y = c.In(1);
  if (!c.IsImage(x) || y == kNone) return ImageLayout::kAsDefined;
  const bool fits =
      c.dims(x) == c.dims(y) || c.numel(y) == 1 ||
      (c.attr<int64_t>("axis") == 1 && c.dims(y) == Dims{c.dims(x)[1]});
  return fits ? ImageLayout::kAny : ImageLayout::kAsDefined;
}

template <class F>
bool PairForm(BareCall& c) {
  const int x = c.In(0), y = c.In(1), out = c.Out(0);
  const auto spread = ReadSpread(c, x, y, out);
  if (!spread) return false;
  return c.Run({x, y}, [=, s = *spread](void* const* m) {
    Combine(s, F(), FloatIn(m, x), FloatIn(m, y), FloatOut(m, out));
  });
}

// dX = dOut and dY = sign * dOut, summed where Y was spread.
template <int kSign>
bool TermsGradForm(BareCall& c) {
  const int x = c.In(0), y = c.In(1), dout = c.In(2);
  const int dx = c.Out(0), dy = c.Out(1);
  const auto spread = ReadSpread(c, x, y, dout);
  if (!spread || !c.AreFloatOrNone({dx, dy})) return false;
  const bool copy_x = dx != kNone && !c.Share(dx, dout);
  const bool make_y =
      dy != kNone && !(spread->same() && kSign == 1 && c.Share(dy, dout));
  return c.Run({dout}, [=, s = *spread](void* const* m) {
    const float* up = FloatIn(m, dout);
    if (copy_x) std::copy_n(up, s.numel(), FloatOut(m, dx));
    if (!make_y) return;
    Collect(
        s, [up](int64_t i) { return static_cast<float>(kSign) * up[i]; },
        FloatOut(m, dy));
  });
}

bool ProductGradForm(BareCall& c) {
  const int x = c.In(0), y = c.In(1), dout = c.In(2);
  const int dx = c.Out(0), dy = c.Out(1);
  const auto spread = ReadSpread(c, x, y, dout);
  if (!spread || !c.AreFloatOrNone({dx, dy})) return false;
  return c.Run(
      {dout, dx == kNone ? kNone : y, dy == kNone ? kNone : x},
      [=, s = *spread](void* const* m) {
        const float* up = FloatIn(m, dout);
        if (dx != kNone) {
          Combine(s, MultiplyOp(), up, FloatIn(m, y), FloatOut(m, dx));
        }
        if (dy == kNone) return;
        const float* from = FloatIn(m, x);
        Collect(s, [=](int64_t i) { return up[i] * from[i]; }, FloatOut(m, dy));
      });
}

// ---- many operands

bool SumForm(BareCall& c) {
  const int out = c.Out(0);
  const std::vector<int> parts(c.inputs().begin(), c.inputs().end());
  if (parts.empty() || !c.IsFloat(out) || !c.AreFloat(parts)) return false;
  for (int x : parts) {
    if (c.numel(x) != c.numel(out)) return false;
  }
  return c.Run(c.inputs(), [=, n = c.numel(out)](void* const* m) {
    float* to = FloatOut(m, out);
    ForElements(n, [=, &parts](int64_t begin, int64_t end) {
      std::copy(FloatIn(m, parts[0]) + begin, FloatIn(m, parts[0]) + end,
                to + begin);
      for (size_t k = 1; k < parts.size(); ++k) {
        const float* from = FloatIn(m, parts[k]);
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    });
  });
}

// Every part gets the gradient of the sum.
bool SumGradForm(BareCall& c) {
  if (c.inputs().empty()) return false;
  const int dout = c.inputs().back();
  for (int part : c.outputs()) {
    if (part != kNone &&
        (!c.AreFloat({part, dout}) || c.numel(part) != c.numel(dout))) {
      return false;
    }
  }
  std::vector<int> copies;
  for (int part : c.outputs()) {
    if (part != kNone && !c.Share(part, dout)) copies.push_back(part);
  }
  return c.Run({dout},
               [=, bytes = c.numel(dout) * sizeof(float)](void* const* m) {
                 for (int part : copies) std::memcpy(m[part], m[dout], bytes);
               });
}

}  // namespace

void AddBinaryForms(KernelTable& k) {
  k.OnMemory("scale", ScaleForm, ScaleGradForm, AnyLayout);
  k.OnMemory("elementwise_add", PairForm<AddOp>, TermsGradForm<1>, PairLayout);
  k.OnMemory("elementwise_sub", PairForm<SubtractOp>, TermsGradForm<-1>,
             PairLayout);
  k.OnMemory("elementwise_mul", PairForm<MultiplyOp>, ProductGradForm,
             PairLayout);
  k.OnMemory("sum", SumForm, SumGradForm, AnyLayout);
}

}  // namespace fleet::ops
