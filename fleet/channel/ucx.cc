// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/ucx.h"

#include <cstdlib>
#include <utility>

#include "fleet/base/module.h"
#include "fleet/channel/ucx_module.h"

namespace fleet::channel {
namespace {

// UCX reads these when it is loaded. What the user says of them counts.
void SetDefaults() {
  constexpr const char* kDefaults[][2] = {
      // Its own handlers would take the place of Python's and ours.
      {"UCX_HANDLE_ERRORS", "none"},
      {"UCX_ERROR_SIGNALS", ""},
      // It would replace mmap and malloc of the whole process.
      {"UCX_MEM_EVENTS", "n"},
      {"UCX_MEM_MMAP_HOOK_MODE", "none"},
      {"UCX_MEM_MALLOC_HOOKS", "n"},
      // A peer that is gone is no news for the log: the channel says so.
      {"UCX_LOG_LEVEL", "fatal"},
      // Pieces of 8 KB, its default, cost half of the throughput over TCP.
      {"UCX_TCP_TX_SEG_SIZE", "256k"},
      {"UCX_TCP_RX_SEG_SIZE", "256k"},
  };
  for (const auto& [name, value] : kDefaults) {
    (void)setenv(name, value, /*overwrite=*/0);
  }
}

Result<UcxEntry*> Load() {
  static const bool once = (SetDefaults(), true);
  (void)once;
  ASSIGN_OR_RETURN(
      void* entry,
      base::LoadModule("libfleet_ucx.so", kUcxEntry,
                       "FLEET_CHANNEL=ucx needs UCX (Debian: libucx-dev) when "
                       "Fleet is built and when it runs; without it, leave "
                       "FLEET_CHANNEL unset"));
  return reinterpret_cast<UcxEntry*>(entry);
}

}  // namespace

Status LoadUcx() { return Load().status(); }

Result<std::unique_ptr<ByteStream>> MakeUcxStream(base::Descriptor life) {
  ASSIGN_OR_RETURN(UcxEntry* const open, Load());
  UcxOpening opening{.life = std::move(life), .status = {}, .stream = {}};
  open(&opening);
  RETURN_IF_ERROR(opening.status);
  return std::move(opening.stream);
}

}  // namespace fleet::channel
