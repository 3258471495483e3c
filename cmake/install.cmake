# What `cmake --install` puts where: the program, the static library, the shared one for C, the public
# headers, the shell completion, a file for pkg-config, and a CMake package, so that
# `find_package(kvant)` gives kvant::kvant (C++: <kvant/session.h>) and kvant::c (<kvant/kvant.h>).
# The component `common` is what dist.cmake installs beside its own program and library: all but what a
# program in C++ needs.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvant)

install(TARGETS kvant EXPORT kvant ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET kvant_shared)
  install(TARGETS kvant_shared EXPORT kvant_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT kvant_c NAMESPACE kvant:: FILE kvant-c-targets.cmake DESTINATION ${package_dir}
    COMPONENT common)
  file(RELATIVE_PATH include_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
    ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  configure_file(cmake/kvant.pc.in kvant.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/kvant.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT common)
endif()
if(TARGET kvant_cli)
  install(TARGETS kvant_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/kvant DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT common
  FILES_MATCHING PATTERN kvant*.h)
install(DIRECTORY include/kvant DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN kvant*.h EXCLUDE)
if(EXISTS ${CMAKE_SOURCE_DIR}/tools/completion/kvant.bash)
  install(FILES tools/completion/kvant.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME kvant COMPONENT common)
  install(FILES tools/completion/_kvant
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT common)
endif()
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/kvant COMPONENT common
  FILES_MATCHING PATTERN *.gguf PATTERN reference EXCLUDE)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT common)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT common)

install(EXPORT kvant NAMESPACE kvant:: FILE kvant-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/kvant-config.cmake.in kvant-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(kvant-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/kvant-config.cmake ${CMAKE_BINARY_DIR}/kvant-config-version.cmake
              cmake/FindoneDNN.cmake
  DESTINATION ${package_dir} COMPONENT common)
