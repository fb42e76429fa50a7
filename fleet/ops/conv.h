// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_CONV_H_
#define FLEET_OPS_CONV_H_

#include <array>
#include <cstdint>
#include <memory>

// Convolutions of images on the CPU that are made ready once and run many
// times. Images are dense floats with the channels last, [n, h, w, c]; filters
// are as programs hold them, [out, in / groups, h, w]. Two files implement
// this: conv_onednn.cc where oneDNN is installed, conv_plain.cc elsewhere.

namespace fleet::ops {

// Pairs are of height and width.
struct ConvShape {
  int64_t batch;
  int64_t in_channels;
  int64_t out_channels;
  std::array<int64_t, 2> in_size;
  std::array<int64_t, 2> out_size;
  std::array<int64_t, 2> kernel;
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> dilation = {1, 1};
  std::array<int64_t, 2> padding_before = {0, 0};
  std::array<int64_t, 2> padding_after = {0, 0};
  int64_t groups = 1;
};

// Whether there are convolutions here at all.
bool ConvIsFast();

// One thread at a time, each of them. Make() gives null where there is no fast
// convolution of that shape: then ATen convolves.
class PreparedConv final {
 public:
  // `relu`: every element of the result is cut off at zero.
  static std::unique_ptr<PreparedConv> Make(const ConvShape& shape,
                                            bool has_bias, bool relu);
  ~PreparedConv();

  // `bias` is not read where there is none.
  void Run(const float* x, const float* filter, const float* bias, float* y);

 private:
  struct Impl;
  explicit PreparedConv(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class PreparedConvInputGrad final {
 public:
  static std::unique_ptr<PreparedConvInputGrad> Make(const ConvShape& shape);
  ~PreparedConvInputGrad();

  void Run(const float* dy, const float* filter, float* dx);

 private:
  struct Impl;
  explicit PreparedConvInputGrad(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class PreparedConvFilterGrad final {
 public:
  static std::unique_ptr<PreparedConvFilterGrad> Make(const ConvShape& shape,
                                                      bool has_bias);
  ~PreparedConvFilterGrad();

  // `dbias` is not written where there is none.
  void Run(const float* x, const float* dy, float* dfilter, float* dbias);

 private:
  struct Impl;
  explicit PreparedConvFilterGrad(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fleet::ops

#endif  // FLEET_OPS_CONV_H_
