// SPDX-License-Identifier: Apache-2.0
#include "fleet/base/check.h"
#include "fleet/ops/conv.h"

// Without oneDNN there are none: whoever asks ConvIsFast() calls ATen.

namespace fleet::ops {

bool ConvIsFast() { return false; }

struct PreparedConv::Impl {};
PreparedConv::PreparedConv(const ConvShape&, bool, bool) {
  FLEET_CHECK(false, "built without oneDNN");
}
PreparedConv::~PreparedConv() = default;
void PreparedConv::Run(const float*, const float*, const float*, float*) {}

struct PreparedConvInputGrad::Impl {};
PreparedConvInputGrad::PreparedConvInputGrad(const ConvShape&) {
  FLEET_CHECK(false, "built without oneDNN");
}
PreparedConvInputGrad::~PreparedConvInputGrad() = default;
void PreparedConvInputGrad::Run(const float*, const float*, float*) {}

struct PreparedConvFilterGrad::Impl {};
PreparedConvFilterGrad::PreparedConvFilterGrad(const ConvShape&, bool) {
  FLEET_CHECK(false, "built without oneDNN");
}
PreparedConvFilterGrad::~PreparedConvFilterGrad() = default;
void PreparedConvFilterGrad::Run(const float*, const float*, float*, float*) {}

}  // namespace fleet::ops
