# One folder of fleet/ is one target. Its whole build file reads
#
#   fleet_library(optim
#     SRCS  update_rule.cc
#     DEPS  fleet::base
#     TESTS update_rule_test.cc)
#
# SRCS are compiled once, into an object library that becomes part of
# libfleet_core or, with the word TORCH, of libfleet. DEPS are the folders and
# third-party targets that the sources may include. Each of TESTS is a program
# of its own.

function(fleet_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SRCS;DEPS;TESTS" ${ARGN})
  add_library(fleet_${name} OBJECT ${ARG_SRCS})
  add_library(fleet::${name} ALIAS fleet_${name})
  target_link_libraries(fleet_${name} PUBLIC fleet_options ${ARG_DEPS}
                                      PRIVATE fleet_hardening)
  set_target_properties(fleet_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(ARG_TORCH)
    target_link_libraries(fleet_${name} PUBLIC fleet_torch)
    fleet_use_headers(fleet_${name} torch_library)
    set(home fleet)
    set(torch TORCH)
  else()
    set(home fleet_core)
    set(torch)
  endif()
  set_property(GLOBAL APPEND PROPERTY ${home}_folders fleet_${name})

  if(FLEET_BUILD_TESTS)
    foreach(source ${ARG_TESTS})
      string(REGEX REPLACE "\\.cc$" "" test ${source})
      string(REPLACE "/" "_" test ${name}_${test})
      fleet_test(${test} ${source} LIBRARIES ${home} ${torch})
    endforeach()
  endif()
endfunction()
