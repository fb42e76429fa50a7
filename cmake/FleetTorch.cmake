# LibTorch is the one inside the torch package of the Python at hand
# (Python_EXECUTABLE). find_package(Torch) drags in CUDA toolkits and flags of its
# own, so the libraries that we use are named here.
#
# Defines the target fleet_torch and FLEET_TORCH_DIR, FLEET_TORCH_VERSION,
# FLEET_TORCH_CUDA (empty for a build without CUDA) and FLEET_CUDA_INCLUDE_DIR
# (CUDA's headers, for such a LibTorch; without them Fleet has no kernels and no
# CUDA graphs of its own, and runs all the same).

# torch is found and its version file read, but torch is not imported: that
# takes a second.
execute_process(
  COMMAND
    ${Python_EXECUTABLE} -c
    "import importlib.util, pathlib, runpy; p = pathlib.Path(importlib.util.find_spec('torch').origin).parent; v = runpy.run_path(str(p / 'version.py')); print(p, v['__version__'], v['cuda'] or '', sep=';')"
  OUTPUT_VARIABLE torch_facts
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE torch_missing)
if(torch_missing)
  message(FATAL_ERROR "no torch package in ${Python_EXECUTABLE}: install it "
                      "there (in Fleet's tree, tools/bootstrap does), or pass "
                      "-DPython_EXECUTABLE=...")
endif()
list(GET torch_facts 0 FLEET_TORCH_DIR)
list(GET torch_facts 1 FLEET_TORCH_VERSION)
list(GET torch_facts 2 FLEET_TORCH_CUDA)
message(STATUS "LibTorch ${FLEET_TORCH_VERSION} in ${FLEET_TORCH_DIR}")

if(FLEET_TORCH_CUDA)
  # In a toolkit, or the packages that pip installs beside torch; of those, one
  # may lack crt/, which nvcc's package has.
  file(GLOB cuda_folders ${FLEET_TORCH_DIR}/../nvidia/cu*/include
       ${FLEET_TORCH_DIR}/../nvidia/cuda_runtime/include)
  find_path(FLEET_CUDA_INCLUDE_DIR crt/host_config.h
            HINTS ${cuda_folders} ENV CUDA_HOME /usr/local/cuda
            PATH_SUFFIXES include)
  if(FLEET_CUDA_INCLUDE_DIR)
    message(STATUS "CUDA's headers in ${FLEET_CUDA_INCLUDE_DIR}")
  else()
    message(STATUS "CUDA's headers are not there: no CUDA graphs")
    set(FLEET_CUDA_INCLUDE_DIR "")
  endif()
else()
  set(FLEET_CUDA_INCLUDE_DIR "")
endif()

if(NOT TARGET fleet_torch)
  add_library(fleet_torch INTERFACE IMPORTED)
  target_include_directories(
    fleet_torch SYSTEM
    INTERFACE ${FLEET_TORCH_DIR}/include
              ${FLEET_TORCH_DIR}/include/torch/csrc/api/include)
  target_compile_definitions(fleet_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  foreach(library c10 torch_cpu)
    target_link_libraries(fleet_torch
                          INTERFACE ${FLEET_TORCH_DIR}/lib/lib${library}.so)
  endforeach()
  if(FLEET_CUDA_INCLUDE_DIR)
    target_include_directories(fleet_torch SYSTEM
                               INTERFACE ${FLEET_CUDA_INCLUDE_DIR})
  endif()
  if(FLEET_TORCH_CUDA)
    # Loading these two is what makes CUDA tensors possible, so the linker must
    # not drop them.
    set(cuda_libraries "-Wl,--push-state,--no-as-needed")
    foreach(library c10_cuda torch_cuda)
      string(APPEND cuda_libraries
             ",${FLEET_TORCH_DIR}/lib/lib${library}.so")
    endforeach()
    target_link_libraries(fleet_torch
                          INTERFACE "${cuda_libraries},--pop-state")
  endif()
endif()
