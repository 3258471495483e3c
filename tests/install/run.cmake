# Installs BUILD_DIR into a fresh prefix under it, then configures, builds and runs the examples
# against that prefix; they see nothing of the source tree.
set(work ${BUILD_DIR}/install_test)
set(source ${CMAKE_CURRENT_LIST_DIR}/../..)
set(model ${source}/models/shakespeare/shakespeare.gguf)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${work}/prefix)
file(COPY ${source}/examples DESTINATION ${work})
run(${CMAKE_COMMAND} -S ${work}/examples -B ${work}/build -G Ninja
    -DCMAKE_PREFIX_PATH=${work}/prefix -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/complete ${model} "ROMEO:")
run(${work}/build/continuous_decoding ${model} "ROMEO:")
run(${work}/build/growing_cache ${model})
find_program(python python3)
if(python)
  run(${python} ${source}/tests/embedding_models.py ${work})
  file(WRITE ${work}/lines.txt "the panda\nhello world\n\na bear\nan e\n")
  execute_process(COMMAND ${work}/build/search ${work}/minibert.gguf ${work}/lines.txt "hello world"
                  OUTPUT_VARIABLE found COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9]  [^\n]+\n" lines "${found}")
  list(LENGTH lines shown)
  if(NOT shown EQUAL 3)
    message(FATAL_ERROR "expected the three nearest lines, found ${found}")
  endif()
endif()
run(${work}/build/complete_c ${model} "ROMEO:")
run(${work}/build/continuous_decoding_c ${model} "ROMEO:")
run(${work}/build/growing_cache_c ${model})

# The same by pkg-config alone.
file(GLOB_RECURSE pc ${work}/prefix/*/kvant.pc)
cmake_path(GET pc PARENT_PATH pc_folder)
set(ENV{PKG_CONFIG_PATH} ${pc_folder})
run(sh -c "cc -std=c99 ${work}/examples/complete.c -o ${work}/complete \
  $(pkg-config --cflags --libs kvant) -Wl,-rpath,$(pkg-config --variable=libdir kvant)")
run(${work}/complete ${model} "ROMEO:")
if(EXISTS ${BUILD_DIR}/kvant)
  run(${work}/prefix/bin/kvant --version)
endif()

# A model that does not exist is an error that is named, not a crash.
execute_process(COMMAND ${work}/build/growing_cache no-such-model.gguf
                RESULT_VARIABLE code ERROR_VARIABLE message)
if(NOT code EQUAL 1 OR NOT message MATCHES "no-such-model.gguf")
  message(FATAL_ERROR "expected exit code 1 and the name of the file, found ${code}: ${message}")
endif()
