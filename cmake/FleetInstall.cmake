# `cmake --install` has two faces. The component `package` is what a wheel holds
# under paddle/_lib; without a component, libraries and headers for C++ users go
# where GNUInstallDirs says, with a find_package(fleet).

include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY fleet_modules)

if(FLEET_BUILD_PYTHON)
  install(TARGETS _core fleet fleet_core ${modules}
          LIBRARY DESTINATION paddle/_lib COMPONENT package EXCLUDE_FROM_ALL)
  install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/torch_version
          DESTINATION paddle/_lib COMPONENT package EXCLUDE_FROM_ALL)
  install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/generated
          DESTINATION paddle/_lib COMPONENT package EXCLUDE_FROM_ALL
          FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
  if(SKBUILD)
    install(DIRECTORY ${CMAKE_BINARY_DIR}/stubs/paddle
            DESTINATION . COMPONENT package EXCLUDE_FROM_ALL
            FILES_MATCHING PATTERN "*.pyi")
  endif()
endif()

# fleetrun: bin/ for C++ users, and in a wheel the folder of scripts, where it is
# beside the Python that it starts.
if(TARGET fleetrun)
  install(TARGETS fleetrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
          COMPONENT development)
  if(SKBUILD)
    install(TARGETS fleetrun RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR}
            COMPONENT package EXCLUDE_FROM_ALL)
  endif()
endif()

install(TARGETS fleet_server RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        COMPONENT development)

set(libraries fleet_core fleet_options)
if(FLEET_WITH_TORCH)
  list(APPEND libraries fleet)
endif()
install(TARGETS ${libraries} EXPORT fleetTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
if(modules)
  install(TARGETS ${modules} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
                                     COMPONENT development)
endif()
# No header of tests, and none of the program fleetrun.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/fleet
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h"
        PATTERN "fleet/testing" EXCLUDE
        PATTERN "fleet/launch" EXCLUDE
        PATTERN "*_conformance*.h" EXCLUDE
        PATTERN "status_matchers.h" EXCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/generated/fleet/program/op_functions.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fleet/program
        COMPONENT development)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fleet)
install(EXPORT fleetTargets NAMESPACE fleet:: DESTINATION ${config_dir}
        COMPONENT development)
configure_package_config_file(
  cmake/fleetConfig.cmake.in ${CMAKE_BINARY_DIR}/fleetConfig.cmake
  INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(
  ${CMAKE_BINARY_DIR}/fleetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/fleetConfig.cmake
              ${CMAKE_BINARY_DIR}/fleetConfigVersion.cmake
              ${CMAKE_SOURCE_DIR}/cmake/FleetTorch.cmake
        DESTINATION ${config_dir} COMPONENT development)
