# Installs the components `common` and `dist` of BUILD_DIR into a fresh PREFIX, and says nothing of it.
file(REMOVE_RECURSE ${PREFIX})
foreach(component common dist)
  execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${PREFIX} --component ${component}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
