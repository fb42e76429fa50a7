# Half of the time of a build would go into reading the headers of LibTorch and
# of GoogleTest again for every file: they are compiled once for each set of
# flags and shared. Files include what they use all the same; a build with
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows whether they do.
#
#   fleet_headers(torch_library)   LibTorch's, for the code of a shared library
#   fleet_headers(torch_test)      LibTorch's and GoogleTest's, for test programs
#   fleet_headers(test)            GoogleTest's, for test programs
#   fleet_use_headers(TARGET KIND) the target takes the headers of that kind

set(standard_headers
    <algorithm> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional>
    <map> <memory> <mutex> <optional> <set> <span> <string> <string_view>
    <thread> <tuple> <utility> <variant> <vector>)
set(torch_headers
    <ATen/ExpandUtils.h> <ATen/Parallel.h> <ATen/TensorOperators.h>
    <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/ops/arange.h>
    <ATen/ops/empty.h> <ATen/ops/empty_like.h> <ATen/ops/full.h>
    <ATen/ops/ones.h> <ATen/ops/sum.h> <ATen/ops/where.h> <ATen/ops/zeros.h>
    <ATen/ops/zeros_like.h>)
set(test_headers <gmock/gmock.h> <gtest/gtest.h>)

function(fleet_headers kind)
  set(source ${CMAKE_BINARY_DIR}/headers.cc)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "")
  endif()
  add_library(fleet_headers_${kind} OBJECT ${source})
  target_link_libraries(fleet_headers_${kind} PRIVATE fleet_options)
  set(headers ${standard_headers})
  if(kind MATCHES "torch")
    target_link_libraries(fleet_headers_${kind} PRIVATE fleet_torch)
    list(APPEND headers ${torch_headers})
  endif()
  if(kind MATCHES "test")
    target_link_libraries(fleet_headers_${kind} PRIVATE GTest::gmock)
    target_compile_options(fleet_headers_${kind} PRIVATE -O0)
    list(APPEND headers ${test_headers})
  else()
    target_link_libraries(fleet_headers_${kind} PRIVATE fleet_hardening)
    set_target_properties(fleet_headers_${kind}
                          PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_precompile_headers(fleet_headers_${kind} PRIVATE ${headers})
endfunction()

function(fleet_use_headers target kind)
  if(NOT TARGET fleet_headers_${kind})
    fleet_headers(${kind})
  endif()
  target_precompile_headers(${target} REUSE_FROM fleet_headers_${kind})
endfunction()
