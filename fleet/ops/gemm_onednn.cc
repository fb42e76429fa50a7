// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <unordered_map>

#include <dnnl.hpp>

#include "fleet/ops/gemm.h"
#include "fleet/ops/onednn_engine.h"
#include "fleet/ops/onednn_gemm.h"

namespace fleet::ops {
namespace {

struct Key {
  GemmShape shape;
  bool bias;
  bool operator==(const Key& o) const {
    return shape.m == o.shape.m && shape.n == o.shape.n &&
           shape.k == o.shape.k && shape.trans_a == o.shape.trans_a &&
           shape.trans_b == o.shape.trans_b && bias == o.bias;
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = key.shape.m;
    for (uint64_t v :
         {uint64_t(key.shape.n), uint64_t(key.shape.k),
          uint64_t(key.shape.trans_a * 4 + key.shape.trans_b * 2 + key.bias)}) {
      h = (h ^ v) * 0x9E3779B97F4A7C15ull;
      h ^= h >> 32;
    }
    return h;
  }
};

// A compiled product and the handles it runs on; the pointers are set per call.
struct Product {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias;
  std::unordered_map<int, dnnl::memory> args;
};

Product Compile(const Key& key, const dnnl::primitive_attr& attr = {}) {
  using dnnl::memory;
  const GemmShape& s = key.shape;
  auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
    memory::dims strides =
        transposed ? memory::dims{1, rows} : memory::dims{columns, 1};
    return memory::desc({rows, columns}, memory::data_type::f32, strides);
  };
  memory::desc a = matrix(s.m, s.k, s.trans_a);
  memory::desc b = matrix(s.k, s.n, s.trans_b);
  memory::desc c = matrix(s.m, s.n, false);
  memory::desc bias = matrix(1, s.n, false);
  auto desc = key.bias ? dnnl::matmul::desc(a, b, bias, c)
                       : dnnl::matmul::desc(a, b, c);
  Product product{
      dnnl::matmul(dnnl::matmul::primitive_desc(desc, attr, OneDnnEngine())),
      memory(a, OneDnnEngine(), nullptr),
      memory(b, OneDnnEngine(), nullptr),
      memory(c, OneDnnEngine(), nullptr),
      memory(bias, OneDnnEngine(), nullptr),
      {}};
  product.args = {{DNNL_ARG_SRC, product.a},
                  {DNNL_ARG_WEIGHTS, product.b},
                  {DNNL_ARG_DST, product.c}};
  if (key.bias) product.args.emplace(DNNL_ARG_BIAS, product.bias);
  return product;
}

// Products are kept per thread, so that setting the pointers needs no lock. A
// model has tens of shapes; a program that keeps meeting new ones starts over
// rather than growing.
Product& Find(const Key& key) {
  constexpr size_t kMaxProducts = 1024;
  thread_local std::unordered_map<Key, Product, KeyHash> products;
  auto it = products.find(key);
  if (it != products.end()) return it->second;
  if (products.size() >= kMaxProducts) products.clear();
  return products.emplace(key, Compile(key)).first->second;
}

void* Mutable(const float* p) { return const_cast<float*>(p); }

dnnl::primitive_attr WithActivation(Activation activation) {
  dnnl::primitive_attr attr;
  dnnl::post_ops ops;
  switch (activation) {
    case Activation::kNone:
      return attr;
    case Activation::kRelu:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
      break;
    case Activation::kTanh:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_tanh, 0, 0);
      break;
    case Activation::kSigmoid:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_logistic, 0, 0);
      break;
  }
  attr.set_post_ops(ops);
  return attr;
}

}  // namespace

struct PreparedGemm::Impl {
  Product product;
  std::array<dnnl_exec_arg_t, 4> args;
  int num_args;
};

PreparedGemm::PreparedGemm(const GemmShape& shape, bool has_bias,
                           Activation activation)
    : impl_(new Impl{Compile({shape, has_bias}, WithActivation(activation)),
                     {},
                     has_bias ? 4 : 3}) {
  const Product& p = impl_->product;
  impl_->args = {{{DNNL_ARG_SRC, p.a.get()},
                  {DNNL_ARG_WEIGHTS, p.b.get()},
                  {DNNL_ARG_DST, p.c.get()},
                  {DNNL_ARG_BIAS, p.bias.get()}}};
}

PreparedGemm::~PreparedGemm() = default;
PreparedGemm::PreparedGemm(PreparedGemm&&) noexcept = default;

void PreparedGemm::Run(const float* a, const float* b, const float* bias,
                       float* c) {
  Product& p = impl_->product;
  p.a.set_data_handle(Mutable(a));
  p.b.set_data_handle(Mutable(b));
  p.c.set_data_handle(c);
  if (impl_->num_args == 4) p.bias.set_data_handle(Mutable(bias));
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(p.primitive.get(), OneDnnStream().get(),
                             impl_->num_args, impl_->args.data()),
      "could not multiply");
}

bool GemmIsFast() {
  // Which implementation it is depends on the machine, not on the shape.
  static const bool fast = [] {
    const dnnl::memory::desc one({1, 1}, dnnl::memory::data_type::f32,
                                 dnnl::memory::dims{1, 1});
    const dnnl::matmul::primitive_desc product(
        dnnl::matmul::desc(one, one, one), OneDnnEngine());
    return RunsFast(product.impl_info_str());
  }();
  return fast;
}

void Gemm(const GemmShape& shape, const float* a, const float* b,
          const float* bias, float* c) {
  Product& product = Find({shape, bias != nullptr});
  product.a.set_data_handle(Mutable(a));
  product.b.set_data_handle(Mutable(b));
  product.c.set_data_handle(c);
  if (bias != nullptr) product.bias.set_data_handle(Mutable(bias));
  product.primitive.execute(OneDnnStream(), product.args);
}

}  // namespace fleet::ops
