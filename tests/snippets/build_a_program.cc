// SPDX-License-Identifier: Apache-2.0
// docs/design/0017-programs-from-cpp.md: builds the program and prints the
// types of its operations, a line each.
#include <cstdio>

#include "fleet/base/status.h"
#include "fleet/plan/minimize.h"
#include "fleet/program/builder.h"

namespace {

using namespace fleet::program;  // as in the document
namespace optim = fleet::optim;
namespace plan = fleet::plan;

fleet::Status Build() {
  // SNIPPET 1
  const auto& block = main.block(0);
  for (size_t i = 0; i < block.num_ops(); ++i) {
    std::printf("%s\n", block.op(i).type.c_str());
  }
  return fleet::OkStatus();
}

}  // namespace

int main() {
  const fleet::Status status = Build();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
