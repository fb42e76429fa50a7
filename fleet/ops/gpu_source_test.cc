// SPDX-License-Identifier: Apache-2.0

// Whether NVRTC compiles the kernels, which needs no GPU. Where it does not,
// programs on a GPU run without them, and nobody is told.

#include "fleet/ops/gpu_source.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::ops {
namespace {

// The functions of nvrtc.h that are called here.
struct Nvrtc {
  int (*create)(void**, const char*, const char*, int, const char* const*,
                const char* const*);
  int (*compile)(void*, int, const char* const*);
  int (*log_size)(void*, size_t*);
  int (*log)(void*, char*);
  int (*destroy)(void**);
};

template <class Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  ASSERT_NE(function, nullptr) << name;
}

class GpuSource : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("FLEET_NVRTC_FOLDER");
    ASSERT_TRUE(folder != nullptr && std::filesystem::is_directory(folder))
        << "nvidia-cuda-nvrtc is not in .venv: tools/bootstrap installs it";
    // NVRTC opens its other library by name, and finds it when it is open.
    void* library = nullptr;
    for (const char* name : {"libnvrtc-builtins.so", "libnvrtc.so"}) {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string file = entry.path().filename().string();
        if (!file.starts_with(std::string(name) + ".")) continue;
        library = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
        ASSERT_NE(library, nullptr) << dlerror();
      }
    }
    ASSERT_NE(library, nullptr) << folder << " has no libnvrtc.so";
    Find(library, "nvrtcCreateProgram", nvrtc_.create);
    Find(library, "nvrtcCompileProgram", nvrtc_.compile);
    Find(library, "nvrtcGetProgramLogSize", nvrtc_.log_size);
    Find(library, "nvrtcGetProgramLog", nvrtc_.log);
    Find(library, "nvrtcDestroyProgram", nvrtc_.destroy);
  }

  Nvrtc nvrtc_{};
};

TEST_P(GpuSource, IsCompiled) {
  const std::string source =
      std::string(kGpuRules) + "\n" + gpu::kGpuShared + "\n" + kGpuSource;
  void* program = nullptr;
  ASSERT_EQ(
      nvrtc_.create(&program, source.c_str(), "fleet.cu", 0, nullptr, nullptr),
      0);
  const std::string target = std::string("--gpu-architecture=") + GetParam();
  const char* options[] = {target.c_str(), "--std=c++17"};
  const int error = nvrtc_.compile(program, 2, options);
  size_t size = 0;
  nvrtc_.log_size(program, &size);
  std::string log(size, '\0');
  nvrtc_.log(program, log.data());
  nvrtc_.destroy(&program);
  EXPECT_EQ(error, 0) << log;
}

INSTANTIATE_TEST_SUITE_P(Architectures, GpuSource,
                         ::testing::Values("sm_75", "sm_80", "sm_90"));

}  // namespace
}  // namespace fleet::ops
