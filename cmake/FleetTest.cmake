# A test program of one file:
#
#   fleet_test(channel_ucx_test ucx_test.cc
#     NEEDS fleet_ucx)
#
# LIBRARIES are linked in front of libfleet_core; with the word TORCH they may be
# those that stand on LibTorch. NEEDS are modules that it loads when it runs.
# COMMAND, where the program is not simply started, and ENVIRONMENT are those of
# ctest.

function(fleet_test name source)
  cmake_parse_arguments(ARG "TORCH" "" "LIBRARIES;NEEDS;COMMAND;ENVIRONMENT"
                        ${ARGN})
  add_executable(${name} ${source})
  # Tests are many and run once: compiling them quickly is worth more.
  target_compile_options(${name} PRIVATE -O0)
  target_link_libraries(${name} PRIVATE fleet_options ${ARG_LIBRARIES}
                                        fleet_core GTest::gmock
                                        GTest::gtest_main)
  if(ARG_TORCH)
    target_link_libraries(${name} PRIVATE fleet_torch)
    fleet_use_headers(${name} torch_test)
  else()
    fleet_use_headers(${name} test)
  endif()
  if(ARG_NEEDS)
    add_dependencies(${name} ${ARG_NEEDS})
  endif()
  if(NOT ARG_COMMAND)
    set(ARG_COMMAND ${name})
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 ENVIRONMENT
                                          "${ARG_ENVIRONMENT}")
endfunction()
