// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/eager/backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include "fleet/ops/eager/eager.h"
#include "fleet/ops/gemm.h"
#include "fleet/ops/kernels.h"

namespace fleet::ops {
namespace {

using at::Tensor;

Tensor Leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

// A graph with a leaf used twice, broadcasting, a diamond and a dead branch.
Tensor Build(const Tensor& x, const Tensor& w, const Tensor& b) {
  Tensor h = at::matmul(x, w) + b;
  Tensor left = h * h, right = h + w.sum();
  Tensor unused = left * 3;
  (void)unused;
  return at::sum(left * right);
}

TEST(Backward, GivesWhatLibTorchsEngineGives) {
  Tensor x = Leaf({4, 3}), w = Leaf({3, 5}), b = Leaf({5});
  Tensor loss = Build(x, w, b);
  auto want = torch::autograd::grad({loss}, {x, w, b}, {},
                                    /*retain_graph=*/true);
  Backward({loss}, {at::ones_like(loss)}, /*retain_graph=*/true);
  EXPECT_TRUE(at::allclose(x.grad(), want[0], 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(w.grad(), want[1], 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(b.grad(), want[2], 1e-4, 1e-5));
}

TEST(Backward, AddsToGradientsThatAreThere) {
  Tensor x = Leaf({3});
  for (int i = 0; i < 2; ++i) {
    Tensor loss = at::sum(x * 2);
    Backward({loss}, {at::ones_like(loss)}, false);
  }
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 4));
}

TEST(Backward, StartsFromSeveralOutputsAlsoWhenOneFeedsTheOther) {
  Tensor x = Leaf({3});
  Tensor y = x * 2, z = y * 5;
  Backward({y, z}, {at::ones_like(y), at::ones_like(z)}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 12));
}

TEST(Backward, ALeafIsItsOwnGradient) {
  Tensor x = Leaf({2});
  Backward({x}, {at::ones_like(x) * 3}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 3));
}

TEST(Backward, GradientsOfTwoLeavesDoNotShareMemory) {
  Tensor x = Leaf({3}), y = Leaf({3});
  Tensor loss = at::sum(x + y);
  Backward({loss}, {at::ones_like(loss)}, false);
  x.mutable_grad().mul_(7);
  EXPECT_TRUE(at::allclose(y.grad(), at::ones_like(y)));
}

TEST(Backward, RunsHooks) {
  Tensor x = Leaf({3});
  x.register_hook([](Tensor grad) { return grad * 10; });
  Tensor y = x * 2;
  y.retain_grad();
  Tensor loss = at::sum(y);
  Backward({loss}, {at::ones_like(loss)}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 20));
  EXPECT_TRUE(at::allclose(y.grad(), at::ones_like(y)));
}

// A hook that counts, and may have a place for the gradient.
class CountingSink final : public GradientSink {
 public:
  struct Log {
    int hooks = 0, taken = 0, in_place = 0;
  };
  CountingSink(Log& log, Tensor place) : log_(log), place_(std::move(place)) {}

  void operator()(const Tensor&) override { ++log_.hooks; }
  Tensor Place() override { return place_; }
  bool Take(const Tensor& grad) override {
    if (!place_.defined()) return false;
    ++log_.taken;
    if (grad.data_ptr() == place_.data_ptr())
      ++log_.in_place;
    else
      place_.copy_(grad);
    return true;
  }

 private:
  Log& log_;
  Tensor place_;
};

void Attach(const Tensor& leaf, CountingSink::Log& log, Tensor place = {}) {
  torch::autograd::impl::set_post_acc_grad_hooks(
      leaf, std::make_unique<CountingSink>(log, std::move(place)));
}

// x w + b by our own op, whose backward kernel can write where it is told.
Tensor Fc(const Tensor& x, const Tensor& w, const Tensor& b) {
  static const OpLibrary library;
  const Tensor inputs[] = {x, w, b};
  const uint32_t ends[] = {1, 2, 3};
  auto out = RunEager(*library.Find("fc"), inputs, ends,
                      library.Find("fc")->def->DefaultAttrs(), {});
  return out.value()[0];
}

TEST(Backward, CallsTheHookBehindAnAccumulation) {
  Tensor x = Leaf({3});
  CountingSink::Log log;
  Attach(x, log);
  for (int i = 1; i <= 2; ++i) {
    Tensor loss = at::sum(x * 2 + x);
    Backward({loss}, {at::ones_like(loss)}, false);
    EXPECT_EQ(log.hooks, i);
  }
  EXPECT_EQ(log.taken, 0);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x) * 6));
}

TEST(Backward, ComputesAGradientWhereItIsWanted) {
  Tensor x = at::randn({4, 3}), w = Leaf({3, 5}), b = Leaf({5});
  Tensor dw = at::zeros({3, 5}), db = at::zeros({5});
  CountingSink::Log log;
  Attach(w, log, dw);
  Attach(b, log, db);
  Tensor loss = at::sum(Fc(x, w, b));
  Backward({loss}, {at::ones_like(loss)}, false);
  EXPECT_EQ(log.taken, 2);
  EXPECT_EQ(log.in_place, GemmIsFast() ? 2 : 0);
  EXPECT_EQ(log.hooks, 0);
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(at::allclose(dw, at::matmul(x.t(), at::ones({4, 5}))));
  EXPECT_TRUE(at::allclose(db, at::ones({5}) * 4));
}

TEST(Backward, AddsTheGradientsOfALeafThatIsUsedTwiceBeforeItIsTaken) {
  Tensor x = at::randn({4, 3}), w = Leaf({3, 3}), b = Leaf({3});
  Tensor dw = at::zeros({3, 3});
  CountingSink::Log log;
  Tensor loss = at::sum(Fc(Fc(x, w, b), w, b));
  auto want = torch::autograd::grad({loss}, {w}, {}, /*retain_graph=*/true);
  Attach(w, log, dw);
  Backward({loss}, {at::ones_like(loss)}, false);
  EXPECT_EQ(log.taken, 1);
  EXPECT_TRUE(at::allclose(dw, want[0], 1e-4, 1e-5));
}

// x w + b, whose backward runs two other backwards to find dw.
class Nested final : public torch::autograd::Function<Nested> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context,
                        const Tensor& x, const Tensor& w, const Tensor& b) {
    context->save_for_backward({x, w, b});
    return at::matmul(x, w) + b;
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::tensor_list grads) {
    const auto saved = context->get_saved_variables();
    Tensor parts[2];
    for (int i = 0; i < 2; ++i) {
      const at::AutoGradMode recording(true);
      Tensor w = saved[1].detach().set_requires_grad(true);
      Tensor out = Fc(saved[0].detach() * (i + 1), w, saved[2].detach());
      parts[i] = torch::autograd::grad({out}, {w}, {grads[0]})[0];
    }
    return {Tensor(), parts[1] - parts[0], at::sum(grads[0], {0})};
  }
};

TEST(Backward, ANodeInsideAnotherDoesNotWriteWhereTheOtherShould) {
  Tensor x = at::randn({4, 3}), w = Leaf({3, 5}), b = Leaf({5});
  Tensor dw = at::zeros({3, 5});
  CountingSink::Log log;
  Attach(w, log, dw);
  Tensor loss = at::sum(Nested::apply(x, w, b));
  Backward({loss}, {at::ones_like(loss)}, false);
  EXPECT_EQ(log.taken, 1);
  EXPECT_EQ(log.in_place, 0);
  EXPECT_TRUE(
      at::allclose(dw, at::matmul(x.t(), at::ones({4, 5})), 1e-5, 1e-6));
}

TEST(Backward, RunsCallbacksAtItsEnd) {
  for (bool with_engine : {false, true}) {
    Tensor x = Leaf({3}), y = Leaf({3});
    std::vector<int> order;
    class Hook final : public torch::autograd::PostAccumulateGradHook {
     public:
      explicit Hook(std::vector<int>& order) : order_(order) {}
      void operator()(const Tensor&) override {
        order_.push_back(1);
        AtEndOfBackward([this] { order_.push_back(2); });
      }

     private:
      std::vector<int>& order_;
    };
    for (const Tensor& leaf : {x, y}) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          leaf, std::make_unique<Hook>(order));
    }
    Tensor product = x * y;
    if (with_engine) product.register_hook([](Tensor g) { return g; });
    Tensor loss = at::sum(product);
    Backward({loss}, {at::ones_like(loss)}, false);
    EXPECT_EQ(order, (std::vector<int>{1, 1, 2, 2})) << with_engine;
  }
}

TEST(Backward, DropsCallbacksWhenItFails) {
  Tensor x = Leaf({3}), y = Leaf({3});
  auto held = std::make_shared<int>(0);
  class Hook final : public torch::autograd::PostAccumulateGradHook {
   public:
    explicit Hook(std::shared_ptr<int> held) : held_(std::move(held)) {}
    void operator()(const Tensor&) override {
      AtEndOfBackward([held = held_] { *held = 1; });
      throw std::runtime_error("no");
    }

   private:
    std::shared_ptr<int> held_;
  };
  torch::autograd::impl::set_post_acc_grad_hooks(x,
                                                 std::make_unique<Hook>(held));
  Tensor loss = at::sum(x * y);
  EXPECT_THROW(Backward({loss}, {at::ones_like(loss)}, false),
               std::runtime_error);
  EXPECT_EQ(*held, 0);
  EXPECT_EQ(held.use_count(), 2);  // this test's and the hook's
}

TEST(Backward, FreesTheGraphUnlessAskedNotTo) {
  Tensor x = Leaf({3});
  Tensor loss = at::sum(x * x);
  Backward({loss}, {at::ones_like(loss)}, true);
  Backward({loss}, {at::ones_like(loss)}, false);
  EXPECT_ANY_THROW(Backward({loss}, {at::ones_like(loss)}, false));
}

TEST(Backward, WalksAGraphThatIsVeryDeep) {
  Tensor x = Leaf({1});
  Tensor y = x;
  for (int i = 0; i < 20000; ++i) y = y + 1;
  Backward({y}, {at::ones_like(y)}, false);
  EXPECT_TRUE(at::allclose(x.grad(), at::ones_like(x)));
}

}  // namespace
}  // namespace fleet::ops
