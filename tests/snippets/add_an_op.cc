// SPDX-License-Identifier: Apache-2.0
// docs/howto/add-an-op.md: the definition, the kernels and the forms of an op,
// in tables of their own.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>

#include "fleet/ops/eager/eager.h"
#include "fleet/ops/elementwise.h"
#include "fleet/ops/kernel.h"
#include "fleet/program/op_definer.h"
#include "fleet/program/shape_rules.h"

namespace fleet::program {
namespace {

Result<std::vector<TensorType>> FloatingX(const OpTypes& t) {
  return SameAs("X")(t);
}

void DefineIt(OpDefiner& ops) {
  // SNIPPET 1
}

}  // namespace
}  // namespace fleet::program

namespace fleet::ops {
namespace {

using at::Tensor;

// SNIPPET 2

void AddIt(KernelTable& k) {
  // SNIPPET 3
}

// A call as a plan makes it, of values with this one type.
class Call final : public BareCall {
 public:
  Call(const Op& op, bool backward, std::span<const uint32_t> slot_end,
       std::span<const int> inputs, std::span<const int> outputs,
       program::TensorType type)
      : BareCall(*op.def, backward, attrs_, slot_end, inputs, outputs),
        type_(std::move(type)) {}

  const program::TensorType& type(int) const override { return type_; }
  bool IsDense(int) const override { return true; }
  bool ChannelsLast(int) const override { return false; }
  std::optional<float> Constant(int) const override { return {}; }
  bool Run(std::span<const int>, Bare made) override {
    work = std::move(made);
    return true;
  }
  bool Fill(int, float) override { return false; }
  bool Share(int, int) override { return false; }

  Bare work;

 private:
  const program::Attrs attrs_;
  const program::TensorType type_;
};

// The values of softsign and of its gradient over bare memory.
std::vector<float> OnMemory(const Op& op, std::vector<float> x) {
  const program::TensorType type{DType::kFloat32, {3}};
  std::vector<float> y(3), dy(3, 1), dx(3);
  const uint32_t one[] = {1}, two[] = {1, 2};
  const int x_alone[] = {0}, x_and_dy[] = {0, 2}, to_y[] = {1}, to_dx[] = {3};
  Call forward(op, false, one, x_alone, to_y, type);
  Call backward(op, true, two, x_and_dy, to_dx, type);
  if (!op.bare_forward(forward) || !op.bare_backward(backward)) return {};
  void* memory[] = {x.data(), y.data(), dy.data(), dx.data()};
  forward.work(memory);
  backward.work(memory);
  y.insert(y.end(), dx.begin(), dx.end());
  return y;
}

// The gradient of softsign at 1 is a quarter. A plan and an eager call give the
// same bits.
int Run() {
  program::OpRegistry definitions;
  program::OpDefiner ops(definitions);
  program::DefineIt(ops);
  KernelTable kernels(definitions);
  AddIt(kernels);
  const Op* softsign = kernels.Find("softsign");
  const std::vector<float> values = {1, -0.3F, 7.7F};
  at::Tensor x = at::tensor(values).set_requires_grad(true);
  const uint32_t end = 1;
  auto out = RunEager(*softsign, {&x, 1}, {&end, 1},
                      softsign->def->DefaultAttrs(), {});
  if (!out.ok()) return 1;
  at::sum((*out)[0]).backward();
  std::vector<float> eager;
  for (const at::Tensor& t : {(*out)[0], x.grad()}) {
    for (int i = 0; i < 3; ++i) eager.push_back(t[i].item<float>());
  }
  std::printf("%g %g\n", eager[0], eager[3]);
  return eager[3] == 0.25F && eager == OnMemory(*softsign, values) ? 0 : 1;
}

}  // namespace
}  // namespace fleet::ops

int main() { return fleet::ops::Run(); }
