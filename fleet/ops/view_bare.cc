// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <c10/core/ScalarType.h>

#include "fleet/ops/kernels.h"

// The form over bare memory of ops that give what they get under another shape.

namespace fleet::ops {
namespace {

// In a backward call the gradient of the output is the last that the rule
// names.
bool ViewForm(BareCall& c) {
  if (c.inputs().empty()) return false;
  const int from = c.backward() ? c.inputs().back() : c.In(0);
  const int to = c.Out(0);
  if (from == kNone || to == kNone || !c.IsDense(from) || !c.IsDense(to) ||
      c.numel(from) != c.numel(to) || c.type(from).dtype != c.type(to).dtype) {
    return false;
  }
  const size_t bytes =
      c.Share(to, from)
          ? 0
          : c.numel(from) * c10::elementSize(ToScalarType(c.type(from).dtype));
  return c.Run({from}, [=](void* const* m) {
    if (bytes != 0) std::memcpy(m[to], m[from], bytes);
  });
}

}  // namespace

void AddViewForms(KernelTable& k) {
  for (const char* op : {"reshape2", "flatten_contiguous_range", "squeeze2",
                         "unsqueeze2", "assign"}) {
    k.OnMemory(op, ViewForm, ViewForm);
  }
}

}  // namespace fleet::ops
