# Makes a wheel of BUILD_DIR/dist/prefix, installs it into a fresh environment of PYTHON, and runs the
# Python examples and the program there; they see nothing of the source tree.
set(work ${BUILD_DIR}/wheel_test)
set(source ${CMAKE_CURRENT_LIST_DIR}/../..)
set(model ${source}/models/shakespeare/shakespeare.gguf)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${PYTHON} ${source}/python/make_wheel.py ${BUILD_DIR}/dist/prefix ${work})
file(GLOB wheel ${work}/kvant-*.whl)
# NumPy is the system's: nothing comes from elsewhere.
run(${PYTHON} -m venv --system-site-packages ${work}/venv)
run(${work}/venv/bin/python -m pip install -q --no-index --no-deps ${wheel})
# The tag promises a glibc that has every symbol, as another reader of the libraries sees it.
execute_process(
  COMMAND sh -c "objdump -T ${work}/venv/lib/python3*/site-packages/kvant/lib/*.so* ${work}/venv/bin/kvant |
    grep -o 'GLIBC_2[.][0-9]*' | sort -uV | tail -1"
  OUTPUT_VARIABLE newest OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "^GLIBC_2[.]" "" newest "${newest}")
if(NOT newest GREATER 1 OR NOT wheel MATCHES "manylinux_2_([0-9]+)_" OR CMAKE_MATCH_1 LESS newest)
  message(FATAL_ERROR "${wheel}: a library needs glibc 2.${newest}")
endif()

file(COPY ${source}/examples DESTINATION ${work})
unset(ENV{PYTHONPATH})
unset(ENV{KVANT_LIBRARY})
run(${work}/venv/bin/python ${work}/examples/continuous_decoding.py ${model} "ROMEO:")
run(${work}/venv/bin/python ${work}/examples/growing_cache.py ${model})
run(${work}/venv/bin/python ${work}/examples/complete.py ${model} "ROMEO:")
run(${PYTHON} ${source}/tests/embedding_models.py ${work})
file(WRITE ${work}/lines.txt "the panda\nhello world\n\na bear\nan e\n")
run(${work}/venv/bin/python ${work}/examples/search.py ${work}/minibert.gguf ${work}/lines.txt "hello world")

execute_process(COMMAND ${work}/venv/bin/python ${work}/examples/growing_cache.py no-such-model.gguf
                RESULT_VARIABLE code ERROR_VARIABLE message)
if(NOT code EQUAL 1 OR NOT message MATCHES "no-such-model.gguf")
  message(FATAL_ERROR "expected exit code 1 and the name of the file, found ${code}: ${message}")
endif()

# The program is the one of the prefix, not a script that starts it, and finds the models by name.
run(${CMAKE_COMMAND} -E compare_files ${work}/venv/bin/kvant ${BUILD_DIR}/dist/prefix/bin/kvant)
foreach(program ${work}/venv/bin/kvant ${BUILD_DIR}/kvant)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "What is 174 + 403?" COMMAND ${program} chat --temp 0
    OUTPUT_VARIABLE answer COMMAND_ERROR_IS_FATAL ANY)
  list(APPEND answers "${answer}")
endforeach()
list(REMOVE_DUPLICATES answers)
if(NOT answers MATCHES "577\\." OR answers MATCHES ";")
  message(FATAL_ERROR "expected one answer with 577, found: ${answers}")
endif()
execute_process(COMMAND ${work}/venv/bin/kvant run RESULT_VARIABLE code ERROR_VARIABLE message)
if(NOT code EQUAL 2)
  message(FATAL_ERROR "kvant run without a model: expected exit code 2, found ${code}: ${message}")
endif()
