# A test program of one file:
#
#   fleet_test(channel_ucx_test ucx_test.cc
#     NEEDS fleet_ucx)
#
# LIBRARIES are linked in front of libfleet_core; with the word TORCH they may be
# those that stand on LibTorch. NEEDS are modules that it loads when it runs.
# COMMAND, where the program is not simply started, and ENVIRONMENT are those of
# ctest.

# The folders whose code is the most threaded. `ninja race_tests` builds their
# tests, and ctest knows them by the label race. Tests whose ranks are processes
# are not among them: ThreadSanitizer sees one process, and each of their suites
# has its like with ranks as threads.
set(race_folders channel cluster comm ps served table)
add_custom_target(race_tests)

function(fleet_test name source)
  cmake_parse_arguments(ARG "TORCH" "" "LIBRARIES;NEEDS;COMMAND;ENVIRONMENT"
                        ${ARGN})
  add_executable(${name} ${source})
  # Tests are many and run once: compiling them quickly is worth more.
  target_compile_options(${name} PRIVATE -O0)
  target_link_libraries(${name} PRIVATE fleet_options ${ARG_LIBRARIES}
                                        fleet_core GTest::gmock)
  if(ARG_TORCH)
    fleet_torch_test_main()
    target_link_libraries(${name} PRIVATE fleet_torch fleet_torch_test_main)
    fleet_use_headers(${name} torch_test)
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
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
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(folder IN_LIST race_folders AND NOT name MATCHES "_process|_mpi_")
    add_dependencies(race_tests ${name})
    set_tests_properties(${name} PROPERTIES LABELS race)
  endif()
endfunction()

# The main() of the tests with LibTorch.
function(fleet_torch_test_main)
  if(TARGET fleet_torch_test_main)
    return()
  endif()
  add_library(fleet_torch_test_main OBJECT
              ${PROJECT_SOURCE_DIR}/fleet/testing/torch_test_main.cc)
  target_link_libraries(fleet_torch_test_main PRIVATE fleet_options fleet_torch
                                                      GTest::gmock)
  target_compile_options(fleet_torch_test_main PRIVATE -O0)
  fleet_use_headers(fleet_torch_test_main torch_test)
endfunction()
