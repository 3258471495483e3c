# Installs BUILD_DIR into a fresh prefix under it, then configures, builds and runs the project in
# this folder against that prefix.
set(work ${BUILD_DIR}/install_test)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work}/build -G Ninja
    -DCMAKE_PREFIX_PATH=${work}/prefix -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/user)
if(EXISTS ${BUILD_DIR}/kvant)
  run(${work}/prefix/bin/kvant --version)
endif()
