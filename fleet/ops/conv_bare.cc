// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/conv_bare.h"

#include <memory>
#include <string>
#include <vector>

#include "fleet/ops/kernels.h"
#include "fleet/program/window.h"

// The forms over bare memory of conv2d: oneDNN's convolutions with the channels
// last. The kernels, with the channels first, are ATen's.

namespace fleet::ops {

std::optional<ConvShape> ReadConv(const BareCall& c) {
  using Ints = std::vector<int64_t>;
  if (!ConvIsFast()) return std::nullopt;
  const int x = c.In(0), filter = c.In(1);
  const int y = c.backward() ? c.inputs().back() : c.Out(0);
  if (!c.IsImage(x) || !c.IsImage(filter) || !c.IsImage(y) ||
      program::ChannelsLast(c.attr<std::string>("data_format"))) {
    return std::nullopt;
  }
  const Dims &in = c.dims(x), &f = c.dims(filter), &out = c.dims(y);
  auto windows = program::MakeWindows(
      {.kernel = std::span(f).subspan(2),
       .strides = c.attr<Ints>("strides"),
       .dilations = c.attr<Ints>("dilations"),
       .paddings = c.attr<Ints>("paddings"),
       .algorithm = c.attr<std::string>("padding_algorithm")},
      std::span(in).subspan(2));
  if (!windows.ok()) return std::nullopt;
  ConvShape s{.batch = in[0],
              .in_channels = in[1],
              .out_channels = out[1],
              .in_size = {in[2], in[3]},
              .out_size = {out[2], out[3]},
              .kernel = {f[2], f[3]},
              .groups = c.attr<int64_t>("groups")};
  if (s.groups < 1 || f[0] != out[1] || f[1] * s.groups != in[1]) {
    return std::nullopt;
  }
  for (size_t i = 0; i < 2; ++i) {
    const program::Window& w = (*windows)[i];
    s.stride[i] = w.stride;
    s.dilation[i] = w.dilation;
    s.padding_before[i] = w.begin;
    // oneDNN wants the padding that the last window really uses.
    s.padding_after[i] = (s.out_size[i] - 1) * w.stride +
                         (w.kernel - 1) * w.dilation + 1 - w.begin -
                         s.in_size[i];
  }
  return s;
}

Bare ConvWork(const ConvShape& shape, int x, int filter, int bias, int y,
              bool relu) {
  const std::shared_ptr<PreparedConv> conv =
      PreparedConv::Make(shape, bias != kNone, relu);
  if (conv == nullptr) return nullptr;
  return [=](void* const* m) {
    conv->Run(FloatIn(m, x), FloatIn(m, filter),
              bias == kNone ? nullptr : FloatIn(m, bias), FloatOut(m, y));
  };
}

namespace {

ImageLayout ConvLayout(const BareCall& c) {
  return ReadConv(c) ? ImageLayout::kChannelsLast : ImageLayout::kAsDefined;
}

bool ConvForm(BareCall& c) {
  const auto shape = ReadConv(c);
  const int x = c.In(0), filter = c.In(1), bias = c.In(2), y = c.Out(0);
  if (!shape || !c.HasChannelsLast(x) || !c.HasChannelsLast(y) ||
      !c.AreFloatOrNone({bias}) ||
      (bias != kNone && c.numel(bias) != shape->out_channels)) {
    return false;
  }
  Bare work = ConvWork(*shape, x, filter, bias, y, false);
  return work && c.Run({x, filter, bias}, std::move(work));
}

bool ConvGradForm(BareCall& c) {
  const auto shape = ReadConv(c);
  if (!shape) return false;
  const int x = c.In(0), filter = c.In(1), dy = c.inputs().back();
  const int dx = c.Out(0), dfilter = c.Out(1), dbias = c.Out(2);
  if (!c.HasChannelsLast(x) || !c.HasChannelsLast(dy) ||
      !c.AreFloatOrNone({dx, dfilter, dbias}) ||
      (dx != kNone && !c.HasChannelsLast(dx))) {
    return false;
  }
  // The gradient of a bias comes with that of the filter.
  if (dfilter == kNone && dbias != kNone) return false;
  std::shared_ptr<PreparedConvInputGrad> to_input;
  std::shared_ptr<PreparedConvFilterGrad> to_filter;
  if (dx != kNone) {
    to_input = PreparedConvInputGrad::Make(*shape);
    if (to_input == nullptr) return false;
  }
  if (dfilter != kNone) {
    to_filter = PreparedConvFilterGrad::Make(*shape, dbias != kNone);
    if (to_filter == nullptr) return false;
  }
  return c.Run(
      {dy, dx == kNone ? kNone : filter, dfilter == kNone ? kNone : x},
      [=](void* const* m) {
        if (to_input) {
          to_input->Run(FloatIn(m, dy), FloatIn(m, filter), FloatOut(m, dx));
        }
        if (to_filter) {
          to_filter->Run(FloatIn(m, x), FloatIn(m, dy), FloatOut(m, dfilter),
                         FloatOutOrNull(m, dbias));
        }
      });
}

}  // namespace

void AddConvForms(KernelTable& k) {
  for (const char* op : {"conv2d", "depthwise_conv2d"}) {
    k.OnMemory(op, ConvForm, ConvGradForm, ConvLayout);
  }
}

}  // namespace fleet::ops
