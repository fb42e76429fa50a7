# Where the third-party libraries come from. Everything is found, nothing is
# copied in; what may be absent leaves a variable that a folder's build file
# looks at to choose between two source files.

find_package(Threads REQUIRED)
find_package(spdlog QUIET)
find_package(OpenSSL 3 QUIET)
find_package(hwy QUIET CONFIG)
if(NOT hwy_FOUND)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(HWY QUIET IMPORTED_TARGET libhwy libhwy-contrib)
  endif()
endif()
# oneDNN's own package file asks for OpenCL, which we do not need.
find_library(DNNL_LIBRARY dnnl)
find_path(DNNL_INCLUDE_DIR dnnl.hpp PATHS /usr/include NO_DEFAULT_PATH)
# Headers only; carry/ is what somebody brought to a machine where nothing can
# be installed.
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp
          HINTS ${CMAKE_SOURCE_DIR}/carry/include)
find_path(PROTOZERO_INCLUDE_DIR protozero/pbf_reader.hpp REQUIRED
          HINTS ${CMAKE_SOURCE_DIR}/carry/include)

# Open MPI, or another by its name in pkg-config.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_search_module(MPI QUIET IMPORTED_TARGET ompi-c mpich)
endif()
find_program(MPIRUN mpirun)

find_library(ROCKSDB_LIBRARY rocksdb)
find_path(ROCKSDB_INCLUDE_DIR rocksdb/db.h)

find_library(UCP_LIBRARY ucp)
find_library(UCS_LIBRARY ucs)
find_path(UCX_INCLUDE_DIR ucp/api/ucp.h)

if(FLEET_WITH_TORCH OR FLEET_BUILD_PYTHON)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
endif()

if(FLEET_WITH_TORCH)
  include(FleetTorch)
endif()
