// SPDX-License-Identifier: Apache-2.0
// docs/howto/mixed-precision.md: builds the program and prints the types of the
// operations of its three blocks, a line each.
#include <cstdio>

#include "fleet/base/status.h"
#include "fleet/plan/minimize.h"
#include "fleet/program/builder.h"

namespace {

using namespace fleet::program;  // as in the document
using fleet::plan::Amp;
namespace optim = fleet::optim;
namespace plan = fleet::plan;

fleet::Status Build() {
  Program main, startup;
  Builder b(main, startup);
  const Value x = b.Data("x", {-1, 32});
  const Value loss = b.Mean(b.Fc(x, 1, {.activation = "tanh"}));
  // SNIPPET 1
  for (size_t n = 0; n < main.num_blocks(); ++n) {
    const Block& block = main.block(static_cast<int>(n));
    for (size_t i = 0; i < block.num_ops(); ++i) {
      std::printf("%s\n", block.op(i).type.c_str());
    }
  }
  return fleet::OkStatus();
}

}  // namespace

int main() {
  const fleet::Status status = Build();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
