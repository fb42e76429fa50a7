# A part of a folder that stands on a library which users may lack, as a shared
# object of its own beside libfleet_core, loaded on first use (base/module.h):
#
#   fleet_module(mpi
#     SRCS  mpi_module.cc
#     DEPS  PkgConfig::MPI)
#
# builds libfleet_mpi.so.

function(fleet_module name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(fleet_${name} MODULE ${ARG_SRCS})
  target_link_libraries(fleet_${name} PRIVATE fleet_options fleet_hardening
                                              fleet_core ${ARG_DEPS})
  set_target_properties(fleet_${name} PROPERTIES INSTALL_RPATH "$ORIGIN")
  set_property(GLOBAL APPEND PROPERTY fleet_modules fleet_${name})
endfunction()
