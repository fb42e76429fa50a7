// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/update/optimizer.h"

#include <cmath>
#include <map>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/program/define_ops.h"

namespace fleet::ops {
namespace {

using at::Tensor;

// One op of the given type, whose tensors go by the names of its slots.
class OptimizerOpTest : public ::testing::Test {
 protected:
  OptimizerOpTest() { program::DefineAllOps(registry_); }

  void Use(const std::string& type,
           const std::map<std::string, program::Attr>& given = {}) {
    def_ = registry_.Find(type);
    program::Attrs attrs = def_->DefaultAttrs();
    for (const auto& [name, value] : given)
      attrs[def_->AttrIndex(name)] = value;
    op_ = ReadOptimizerOp(*def_, attrs);
    ASSERT_TRUE(op_.has_value());
    for (const program::SlotDef& slot : def_->inputs) {
      const std::string& name = slot.name;
      tensors_[name] = at::rand({3, 4}, type_) + 0.1;
      if (name == "LearningRate") tensors_[name] = at::full({1}, 0.1);
      if (name == "Beta1Pow") tensors_[name] = at::full({1}, 0.9);
      if (name == "Beta2Pow") tensors_[name] = at::full({1}, 0.999);
    }
    tensors_["Grad"] = at::randn({3, 4}, type_);
    for (auto& [name, tensor] : tensors_) before_[name] = tensor.clone();
  }

  OptimizerUpdate Update() {
    OptimizerUpdate update;
    auto at = [&](int slot) {
      return slot < 0 ? Tensor() : tensors_[def_->inputs[slot].name];
    };
    update.values = at(op_->param);
    update.gradient = at(op_->gradient);
    update.learning_rate = at(op_->learning_rate);
    for (size_t i = 0; i < op_->state.size(); ++i) {
      update.state[i] = at(op_->state[i]);
    }
    for (size_t i = 0; i < op_->powers.size(); ++i) {
      update.powers[i] = at(op_->powers[i]);
    }
    update.decay = op_->decay_of(0);
    update.transform = op_->transform;
    update.rate_factor = op_->rate_factor;
    update.advances_powers = op_->advances_powers;
    return update;
  }

  void Apply() {
    const OptimizerUpdate update = Update();
    ApplyOptimizer(op_->rule, {&update, 1});
  }

  // What a slot held before, by Paddle's name.
  const Tensor& was(const std::string& slot) { return before_[slot]; }
  void ExpectNow(const std::string& slot, const Tensor& wanted) {
    EXPECT_TRUE(at::allclose(
        tensors_[slot], wanted.to(tensors_[slot].scalar_type()), 1e-5, 1e-6))
        << slot << ": " << tensors_[slot] << " but wanted " << wanted;
  }

  at::NoGradGuard no_grad_;
  at::ScalarType type_ = at::kFloat;
  program::OpRegistry registry_;
  const program::OpDef* def_ = nullptr;
  std::optional<OptimizerOp> op_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, Tensor> before_;
};

TEST_F(OptimizerOpTest, Sgd) {
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    type_ = type;
    Use("sgd");
    const void* memory = tensors_["Param"].data_ptr();
    Apply();
    Tensor wanted =
        was("Param").to(at::kDouble) - 0.1 * was("Grad").to(at::kDouble);
    EXPECT_TRUE(
        at::allclose(tensors_["Param"].to(at::kDouble), wanted, 2e-3, 1e-3));
    EXPECT_EQ(tensors_["Param"].data_ptr(), memory);
  }
}

TEST_F(OptimizerOpTest, MomentumWithNesterovAndDecay) {
  Use("momentum", {{"mu", 0.8},
                   {"use_nesterov", true},
                   {"regularization_method", std::string("l2_decay")},
                   {"regularization_coeff", 0.05}});
  Apply();
  Tensor g = was("Grad") + 0.05 * was("Param");
  Tensor v = 0.8 * was("Velocity") + g;
  ExpectNow("Velocity", v);
  ExpectNow("Param", was("Param") - 0.1 * (g + 0.8 * v));
}

TEST_F(OptimizerOpTest, AdamAdvancesItsPowers) {
  Use("adam", {{"epsilon", 1e-3}});
  Apply();
  Tensor g = was("Grad");
  Tensor m = 0.9 * was("Moment1") + 0.1 * g;
  Tensor v = 0.999 * was("Moment2") + 0.001 * g * g;
  // The first step: the powers are the betas.
  Tensor m_hat = m / (1 - 0.9), v_hat = v / (1 - 0.999);
  ExpectNow("Moment1", m);
  ExpectNow("Moment2", v);
  ExpectNow("Param", was("Param") - 0.1 * m_hat / (v_hat.sqrt() + 1e-3));
  ExpectNow("Beta1Pow", at::full({1}, 0.81));
  ExpectNow("Beta2Pow", at::full({1}, 0.998001));
}

TEST_F(OptimizerOpTest, AdamWShrinksTheParameterFirst) {
  Use("adamw", {{"coeff", 0.2}, {"with_decay", true}, {"lr_ratio", 0.5}});
  Apply();
  Tensor g = was("Grad");
  Tensor m_hat = (0.9 * was("Moment1") + 0.1 * g) / (1 - 0.9);
  Tensor v_hat = (0.999 * was("Moment2") + 0.001 * g * g) / (1 - 0.999);
  ExpectNow("Param", was("Param") * (1 - 0.05 * 0.2) -
                         0.05 * m_hat / (v_hat.sqrt() + 1e-8));
}

TEST_F(OptimizerOpTest, LambScalesByNorms) {
  Use("lamb", {{"weight_decay", 0.01}});
  Apply();
  Tensor g = was("Grad");
  Tensor m_hat = (0.9 * was("Moment1") + 0.1 * g) / (1 - 0.9);
  Tensor v_hat = (0.999 * was("Moment2") + 0.001 * g * g) / (1 - 0.999);
  Tensor r = m_hat / (v_hat.sqrt() + 1e-6) + 0.01 * was("Param");
  ExpectNow("Param", was("Param") - 0.1 * (was("Param").norm() / r.norm()) * r);
}

TEST_F(OptimizerOpTest, Adagrad) {
  Use("adagrad");
  Apply();
  Tensor s = was("Moment") + was("Grad") * was("Grad");
  ExpectNow("Moment", s);
  ExpectNow("Param", was("Param") - 0.1 * was("Grad") / (s.sqrt() + 1e-6));
}

TEST_F(OptimizerOpTest, AdamaxLeavesItsPowerToTheProgram) {
  Use("adamax");
  Apply();
  Tensor m = 0.9 * was("Moment") + 0.1 * was("Grad");
  Tensor u = at::maximum(was("Grad").abs(), 0.999 * was("InfNorm") + 1e-8);
  ExpectNow("InfNorm", u);
  ExpectNow("Param", was("Param") - 0.1 / (1 - 0.9) * m / u);
  ExpectNow("Beta1Pow", was("Beta1Pow"));
}

TEST_F(OptimizerOpTest, AdadeltaWithoutLearningRate) {
  Use("adadelta");
  tensors_["LearningRate"].reset();
  Apply();
  Tensor g = was("Grad");
  Tensor s = 0.95 * was("AvgSquaredGrad") + 0.05 * g * g;
  Tensor d = g * ((was("AvgSquaredUpdate") + 1e-6) / (s + 1e-6)).sqrt();
  ExpectNow("AvgSquaredUpdate", 0.95 * was("AvgSquaredUpdate") + 0.05 * d * d);
  ExpectNow("Param", was("Param") - d);
}

TEST_F(OptimizerOpTest, RmsPropWithAndWithoutMean) {
  for (bool centered : {false, true}) {
    Use("rmsprop", {{"momentum", 0.3}, {"centered", centered}});
    tensors_["MeanSquare"].add_(2);  // stays above the square of the mean
    before_["MeanSquare"].add_(2);
    if (!centered) tensors_["MeanGrad"].reset();
    Apply();
    Tensor g = was("Grad");
    Tensor s = 0.9 * was("MeanSquare") + 0.1 * g * g;
    Tensor under = s + 1e-10;
    if (centered) {
      Tensor a = 0.9 * was("MeanGrad") + 0.1 * g;
      ExpectNow("MeanGrad", a);
      under = under - a * a;
    }
    Tensor b = 0.3 * was("Moment") + 0.1 * g / under.sqrt();
    ExpectNow("MeanSquare", s);
    ExpectNow("Moment", b);
    ExpectNow("Param", was("Param") - b);
  }
}

TEST_F(OptimizerOpTest, LarsWithADecayForEachParameter) {
  Use("lars_momentum", {{"mu", 0.9},
                        {"lars_weight_decay", std::vector<double>{0.01, 0.02}},
                        {"rescale_grad", 0.5}});
  EXPECT_EQ(op_->decay_of(1).decoupled, 0.02);
  Apply();
  Tensor g = 0.5 * was("Grad"), p = was("Param");
  Tensor rate = 0.1 * 0.001 * p.norm() / (g.norm() + 0.01 * p.norm());
  Tensor v = 0.9 * was("Velocity") + rate * (g + 0.01 * p);
  ExpectNow("Velocity", v);
  ExpectNow("Param", p - v);
}

TEST_F(OptimizerOpTest, Ftrl) {
  Use("ftrl", {{"l1", 0.1}, {"l2", 0.2}});
  Apply();
  Tensor g = was("Grad"), n = was("SquaredAccumulator");
  Tensor n2 = n + g * g;
  Tensor z = was("LinearAccumulator") + g -
             (n2.sqrt() - n.sqrt()) / 0.1 * was("Param");
  Tensor moved = (0.1 * z.sign() - z) / (n2.sqrt() / 0.1 + 0.4);
  ExpectNow("LinearAccumulator", z);
  ExpectNow("Param", at::where(z.abs() > 0.1, moved, at::zeros_like(moved)));
}

TEST_F(OptimizerOpTest, ASparseGradientChangesOnlyItsRows) {
  Use("adam", {{"lazy_mode", true}});
  Tensor rows = at::tensor({2, 0, 2}, at::kLong);
  Tensor values = at::randn({3, 4});
  tensors_["Grad"] = at::_sparse_coo_tensor_unsafe(
      rows.unsqueeze(0), values, {3, 4}, values.options().layout(at::kSparse));
  Apply();
  Tensor g = at::zeros({3, 4}).index_add_(0, rows, values);
  Tensor m = 0.9 * was("Moment1") + 0.1 * g;
  Tensor v = 0.999 * was("Moment2") + 0.001 * g * g;
  Tensor moved =
      was("Param") - 0.1 * (m / (1 - 0.9)) / ((v / (1 - 0.999)).sqrt() + 1e-8);
  moved[1].copy_(was("Param")[1]);
  m[1].copy_(was("Moment1")[1]);
  ExpectNow("Moment1", m);
  ExpectNow("Param", moved);
}

TEST_F(OptimizerOpTest, WrongShapesChangeNothing) {
  Use("sgd");
  tensors_["Grad"] = at::zeros({4, 3});
  EXPECT_THROW(Apply(), c10::Error);
  ExpectNow("Param", was("Param"));
}

TEST_F(OptimizerOpTest, OtherOpsAreNone) {
  const program::OpDef* def = registry_.Find("scale");
  EXPECT_FALSE(ReadOptimizerOp(*def, def->DefaultAttrs()).has_value());
}

}  // namespace
}  // namespace fleet::ops
