// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include "fleet/ops/conv.h"
#include "fleet/ops/onednn_engine.h"
#include "fleet/ops/onednn_gemm.h"

namespace fleet::ops {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Desc(const memory::dims& dims, Tag tag) {
  return {dims, memory::data_type::f32, tag};
}

// What oneDNN wants to know of a convolution.
struct Descs {
  memory::desc x, y, bias;
  memory::desc any_filter;    // in whatever order is best
  memory::desc plain_filter;  // as programs hold it
  memory::dims stride, dilation, before, after;

  explicit Descs(const ConvShape& s)
      : x(Desc({s.batch, s.in_channels, s.in_size[0], s.in_size[1]},
               Tag::nhwc)),
        y(Desc({s.batch, s.out_channels, s.out_size[0], s.out_size[1]},
               Tag::nhwc)),
        bias(Desc({s.out_channels}, Tag::a)),
        stride(s.stride.begin(), s.stride.end()),
        dilation{s.dilation[0] - 1, s.dilation[1] - 1},
        before(s.padding_before.begin(), s.padding_before.end()),
        after(s.padding_after.begin(), s.padding_after.end()) {
    memory::dims filter = {s.out_channels, s.in_channels, s.kernel[0],
                           s.kernel[1]};
    if (s.groups == 1) {
      any_filter = Desc(filter, Tag::any);
      plain_filter = Desc(filter, Tag::oihw);
    } else {
      filter = {s.groups, s.out_channels / s.groups, s.in_channels / s.groups,
                s.kernel[0], s.kernel[1]};
      any_filter = Desc(filter, Tag::any);
      plain_filter = Desc(filter, Tag::goihw);
    }
  }
};

// Goes to the first implementation that runs fast in this process and is not of
// the kind to `avoid`; false if there is none.
bool Choose(dnnl::primitive_desc& desc, std::string_view avoid = {}) {
  const auto avoided = [&] {
    const std::string_view name = desc.impl_info_str();
    return !avoid.empty() && name.starts_with(avoid);
  };
  while (!RunsFast(desc.impl_info_str()) || avoided()) {
    if (!desc.next_impl()) return false;
  }
  return true;
}

// The implementations whose gradient of the filter writes behind the end of
// their own memory, or nothing. For filters of one pixel with strides they
// gather those pixels that they read, in vectors of eight (AVX2) or sixteen
// (AVX-512) channels.
std::string_view OverrunningFilterGrad(const ConvShape& s) {
  const bool strided = s.stride[0] > 1 || s.stride[1] > 1;
  return strided && s.in_channels % 16 != 0 ? "jit_1x1:" : "";
}

dnnl::convolution_forward::desc ForwardOp(const Descs& d, bool has_bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto direct = dnnl::algorithm::convolution_direct;
  return has_bias
             ? dnnl::convolution_forward::desc(kind, direct, d.x, d.any_filter,
                                               d.bias, d.y, d.stride,
                                               d.dilation, d.before, d.after)
             : dnnl::convolution_forward::desc(kind, direct, d.x, d.any_filter,
                                               d.y, d.stride, d.dilation,
                                               d.before, d.after);
}

dnnl::primitive_attr WithRelu(bool relu) {
  dnnl::primitive_attr attr;
  if (!relu) return attr;
  dnnl::post_ops ops;
  ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
  attr.set_post_ops(ops);
  return attr;
}

// While oneDNN goes through implementations it reads the operation that it was
// given at first, and the forward implementation: both stay where they are.
struct Forward {
  Forward(const Descs& d, bool has_bias, bool relu)
      : op(ForwardOp(d, has_bias)), desc(op, WithRelu(relu), OneDnnEngine()) {}
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  const dnnl::convolution_forward::desc op;
  dnnl::convolution_forward::primitive_desc desc;
};

// A primitive and the memory that it runs on.
class Call {
 public:
  Call(dnnl::primitive primitive,
       std::initializer_list<std::pair<int, memory>> arguments)
      : primitive_(std::move(primitive)), memories_(arguments) {
    for (const auto& [number, m] : memories_) {
      args_.push_back({number, m.get()});
    }
  }
  void Set(int i, const float* data) {
    memories_[i].second.set_data_handle(const_cast<float*>(data));
  }
  void Run() {
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), OneDnnStream().get(),
                               static_cast<int>(args_.size()), args_.data()),
        "could not convolve");
  }

 private:
  dnnl::primitive primitive_;
  std::vector<std::pair<int, memory>> memories_;
  std::vector<dnnl_exec_arg_t> args_;
};

// Memory for a filter in oneDNN's order while one convolution runs. There is
// one for all of them: a network's filters would need as much again as they
// have.
class Scratch {
 public:
  float* Get(size_t bytes) {
    if (bytes > bytes_) {
      bytes_ = (bytes + kAlign - 1) / kAlign * kAlign;
      data_.reset(static_cast<float*>(std::aligned_alloc(kAlign, bytes_)));
    }
    return data_.get();
  }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
  size_t bytes_ = 0;
};

float* FilterScratch(size_t bytes) {
  thread_local Scratch scratch;
  return scratch.Get(bytes);
}

memory Unset(const memory::desc& desc) {
  return {desc, OneDnnEngine(), nullptr};
}

// From one order of a filter to another.
Call Reorder(const memory& from, const memory& to) {
  return {dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

}  // namespace

bool ConvIsFast() { return true; }

struct PreparedConv::Impl {
  size_t filter_bytes;
  Call reorder;
  Call conv;
  bool has_bias;

  static std::unique_ptr<Impl> Make(const ConvShape& shape, bool has_bias,
                                    bool relu) {
    const Descs d(shape);
    Forward forward(d, has_bias, relu);
    if (!Choose(forward.desc)) return nullptr;
    const auto& desc = forward.desc;
    const memory filter = Unset(desc.weights_desc());
    Call reorder = Reorder(Unset(d.plain_filter), filter);
    std::initializer_list<std::pair<int, memory>> plain = {
        {DNNL_ARG_SRC, Unset(d.x)},
        {DNNL_ARG_DST, Unset(d.y)},
        {DNNL_ARG_WEIGHTS, filter}};
    std::initializer_list<std::pair<int, memory>> biased = {
        {DNNL_ARG_SRC, Unset(d.x)},
        {DNNL_ARG_DST, Unset(d.y)},
        {DNNL_ARG_WEIGHTS, filter},
        {DNNL_ARG_BIAS, Unset(d.bias)}};
    return std::unique_ptr<Impl>(new Impl{
        desc.weights_desc().get_size(), std::move(reorder),
        Call(dnnl::convolution_forward(desc), has_bias ? biased : plain),
        has_bias});
  }
};

PreparedConv::PreparedConv(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
PreparedConv::~PreparedConv() = default;

std::unique_ptr<PreparedConv> PreparedConv::Make(const ConvShape& shape,
                                                 bool has_bias, bool relu) {
  std::unique_ptr<Impl> impl = Impl::Make(shape, has_bias, relu);
  if (impl == nullptr) return nullptr;
  return std::unique_ptr<PreparedConv>(new PreparedConv(std::move(impl)));
}

void PreparedConv::Run(const float* x, const float* filter, const float* bias,
                       float* y) {
  float* reordered = FilterScratch(impl_->filter_bytes);
  impl_->reorder.Set(0, filter);
  impl_->reorder.Set(1, reordered);
  impl_->reorder.Run();
  impl_->conv.Set(0, x);
  impl_->conv.Set(1, y);
  impl_->conv.Set(2, reordered);
  if (impl_->has_bias) impl_->conv.Set(3, bias);
  impl_->conv.Run();
}

struct PreparedConvInputGrad::Impl {
  size_t filter_bytes;
  Call reorder;
  Call conv;
};

PreparedConvInputGrad::PreparedConvInputGrad(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
PreparedConvInputGrad::~PreparedConvInputGrad() = default;

std::unique_ptr<PreparedConvInputGrad> PreparedConvInputGrad::Make(
    const ConvShape& shape) {
  const Descs d(shape);
  const Forward forward(d, false, false);
  const dnnl::convolution_backward_data::desc op(
      dnnl::algorithm::convolution_direct, d.x, d.any_filter, d.y, d.stride,
      d.dilation, d.before, d.after);
  dnnl::convolution_backward_data::primitive_desc desc(op, OneDnnEngine(),
                                                       forward.desc);
  if (!Choose(desc)) return nullptr;
  const memory filter = Unset(desc.weights_desc());
  std::unique_ptr<Impl> impl(new Impl{
      desc.weights_desc().get_size(), Reorder(Unset(d.plain_filter), filter),
      Call(dnnl::convolution_backward_data(desc),
           {{DNNL_ARG_DIFF_DST, Unset(d.y)},
            {DNNL_ARG_DIFF_SRC, Unset(d.x)},
            {DNNL_ARG_WEIGHTS, filter}})});
  return std::unique_ptr<PreparedConvInputGrad>(
      new PreparedConvInputGrad(std::move(impl)));
}

void PreparedConvInputGrad::Run(const float* dy, const float* filter,
                                float* dx) {
  float* reordered = FilterScratch(impl_->filter_bytes);
  impl_->reorder.Set(0, filter);
  impl_->reorder.Set(1, reordered);
  impl_->reorder.Run();
  impl_->conv.Set(0, dy);
  impl_->conv.Set(1, dx);
  impl_->conv.Set(2, reordered);
  impl_->conv.Run();
}

struct PreparedConvFilterGrad::Impl {
  size_t filter_bytes;
  Call conv;
  Call reorder;
  bool has_bias;
};

PreparedConvFilterGrad::PreparedConvFilterGrad(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
PreparedConvFilterGrad::~PreparedConvFilterGrad() = default;

std::unique_ptr<PreparedConvFilterGrad> PreparedConvFilterGrad::Make(
    const ConvShape& shape, bool has_bias) {
  const Descs d(shape);
  const auto direct = dnnl::algorithm::convolution_direct;
  const auto op = has_bias ? dnnl::convolution_backward_weights::desc(
                                 direct, d.x, d.any_filter, d.bias, d.y,
                                 d.stride, d.dilation, d.before, d.after)
                           : dnnl::convolution_backward_weights::desc(
                                 direct, d.x, d.any_filter, d.y, d.stride,
                                 d.dilation, d.before, d.after);
  const Forward forward(d, has_bias, false);
  dnnl::convolution_backward_weights::primitive_desc desc(op, OneDnnEngine(),
                                                          forward.desc);
  if (!Choose(desc, OverrunningFilterGrad(shape))) return nullptr;
  const memory filter = Unset(desc.diff_weights_desc());
  std::initializer_list<std::pair<int, memory>> plain = {
      {DNNL_ARG_SRC, Unset(d.x)},
      {DNNL_ARG_DIFF_DST, Unset(d.y)},
      {DNNL_ARG_DIFF_WEIGHTS, filter}};
  std::initializer_list<std::pair<int, memory>> biased = {
      {DNNL_ARG_SRC, Unset(d.x)},
      {DNNL_ARG_DIFF_DST, Unset(d.y)},
      {DNNL_ARG_DIFF_WEIGHTS, filter},
      {DNNL_ARG_DIFF_BIAS, Unset(d.bias)}};
  std::unique_ptr<Impl> impl(new Impl{
      desc.diff_weights_desc().get_size(),
      Call(dnnl::convolution_backward_weights(desc), has_bias ? biased : plain),
      Reorder(filter, Unset(d.plain_filter)), has_bias});
  return std::unique_ptr<PreparedConvFilterGrad>(
      new PreparedConvFilterGrad(std::move(impl)));
}

void PreparedConvFilterGrad::Run(const float* x, const float* dy,
                                 float* dfilter, float* dbias) {
  float* reordered = FilterScratch(impl_->filter_bytes);
  impl_->conv.Set(0, x);
  impl_->conv.Set(1, dy);
  impl_->conv.Set(2, reordered);
  if (impl_->has_bias) impl_->conv.Set(3, dbias);
  impl_->conv.Run();
  impl_->reorder.Set(0, reordered);
  impl_->reorder.Set(1, dfilter);
  impl_->reorder.Run();
}

}  // namespace fleet::ops
