// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/conv.h"

// Without oneDNN there are none: whoever asks ConvIsFast() calls ATen.

namespace fleet::ops {

bool ConvIsFast() { return false; }

struct PreparedConv::Impl {};
PreparedConv::PreparedConv(std::unique_ptr<Impl>) {}
PreparedConv::~PreparedConv() = default;
std::unique_ptr<PreparedConv> PreparedConv::Make(const ConvShape&, bool, bool) {
  return nullptr;
}
void PreparedConv::Run(const float*, const float*, const float*, float*) {}

struct PreparedConvInputGrad::Impl {};
PreparedConvInputGrad::PreparedConvInputGrad(std::unique_ptr<Impl>) {}
PreparedConvInputGrad::~PreparedConvInputGrad() = default;
std::unique_ptr<PreparedConvInputGrad> PreparedConvInputGrad::Make(
    const ConvShape&) {
  return nullptr;
}
void PreparedConvInputGrad::Run(const float*, const float*, float*) {}

struct PreparedConvFilterGrad::Impl {};
PreparedConvFilterGrad::PreparedConvFilterGrad(std::unique_ptr<Impl>) {}
PreparedConvFilterGrad::~PreparedConvFilterGrad() = default;
std::unique_ptr<PreparedConvFilterGrad> PreparedConvFilterGrad::Make(
    const ConvShape&, bool) {
  return nullptr;
}
void PreparedConvFilterGrad::Run(const float*, const float*, float*, float*) {}

}  // namespace fleet::ops
