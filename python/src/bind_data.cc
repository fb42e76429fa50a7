// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <nanobind/nanobind.h>

namespace fleet::python {
namespace {

// Under the generator's lock, as every op that draws from it.
uint64_t DrawSeed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// Seeds the CPU only: a forked process must not touch the parent's other
// devices.
void SeedCpu(uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

void BindData(nanobind::module_& m) {
  m.def("draw_seed", DrawSeed,
        "A number from the process's generator, to seed another one with.");
  m.def("seed_cpu", SeedCpu,
        "Starts the CPU's generator from a seed, and no other device's.");
}

}  // namespace fleet::python
