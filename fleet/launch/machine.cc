// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/machine.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "fleet/base/cores.h"
#include "fleet/cluster/bind_address.h"

namespace fleet::launch {
namespace {

int CountDeviceFiles(const std::filesystem::path& root) {
  int count = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(root / "dev", error)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("nvidia") || name.size() == 6) continue;
    name.erase(0, 6);
    count += std::all_of(name.begin(), name.end(),
                         [](char c) { return c >= '0' && c <= '9'; });
  }
  return count;
}

// CUDA stops at the first entry that names no device.
int CountVisible(std::string_view list, int present) {
  int count = 0;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    if (item.empty() || item.front() == '-' || item == "NoDevFiles") break;
    ++count;
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
  }
  return std::min(count, present);
}

}  // namespace

int CountGpus(const cluster::Environment& env,
              const std::filesystem::path& root) {
  const int present = CountDeviceFiles(root);
  const auto visible = cluster::Find(env, "CUDA_VISIBLE_DEVICES");
  return visible ? CountVisible(*visible, present) : present;
}

Machine ThisMachine(const cluster::Environment& env) {
  return {.num_gpus = CountGpus(env),
          .num_cores = base::NumCores(),
          .is_own_address = cluster::IsOwnAddress};
}

}  // namespace fleet::launch
