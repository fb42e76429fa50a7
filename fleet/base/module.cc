// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/module.h"

#include <dlfcn.h>
#include <filesystem>
#include <string>

namespace fleet::base {
namespace {

// The folder of the library that holds this function.
std::string OwnFolder() {
  Dl_info own;
  const auto* here = reinterpret_cast<const void*>(&OwnFolder);
  if (dladdr(here, &own) == 0 || own.dli_fname == nullptr) return ".";
  return std::filesystem::path(own.dli_fname).parent_path().string();
}

std::string LastError() {
  const char* text = dlerror();  // forgets it
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

Result<void*> LoadModule(const std::string& file, const char* entry,
                         const std::string& remedy) {
  const std::string path = OwnFolder() + "/" + file;
  // What the module calls is looked for now, so that a library of another
  // version is an error here and not a crash later.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return Unimplemented(LastError(), "; ", remedy);
  void* address = dlsym(module, entry);
  if (address == nullptr) {
    return Unimplemented(path, " is of another version: ", LastError(), "; ",
                         remedy);
  }
  return address;
}

}  // namespace fleet::base
