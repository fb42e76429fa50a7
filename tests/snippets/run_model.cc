// SPDX-License-Identifier: Apache-2.0
// docs/howto/save-and-load.md: a model of eight inputs, in the folder that the
// program is started in.
#include <cstdio>
#include <vector>

#include <ATen/ops/ones.h>

namespace {

fleet::Status Run() {
  const at::Tensor x = at::ones({2, 8});
  // SNIPPET 1
  std::printf("%ld outputs of %ld rows\n", static_cast<long>(outputs.size()),
              static_cast<long>(outputs.at(0).size(0)));
  return fleet::OkStatus();
}

}  // namespace

int main() {
  const fleet::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
