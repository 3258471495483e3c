# CTest, from the package cmake 3.25.2 of PyPI.
#
# A file that the directory property TEST_INCLUDE_FILES names is read by ctest when it starts. Good guess:
# it follows the policies of the project's cmake_minimum_required(VERSION 3.25). Seen: ctest sets no
# policies, all of them are OLD, and if(... IN_LIST ...), an operator since CMake 3.3, is an error there.
# `ctest -N` reports the error, lists no test and exits with a code that is not 0.
source "$(dirname "$0")/common.bash"

python_with cmake==3.25.2
bin=$PWD/venv/bin
mkdir project
cat >project/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(policies LANGUAGES NONE)
enable_testing()
set(names one two)
if(one IN_LIST names)
  message(STATUS "the project knows IN_LIST")
endif()
set_property(DIRECTORY PROPERTY TEST_INCLUDE_FILES ${CMAKE_SOURCE_DIR}/more.cmake)
END
cat >project/more.cmake <<'END'
set(names one two)
if("one" IN_LIST names)
  add_test(one true)
endif()
END
known=$("$bin/cmake" -S project -B build | grep -c "the project knows IN_LIST")
expect "IN_LIST in CMakeLists.txt" 1 "$known"
status=0
(cd build && "$bin/ctest" -N) >log 2>&1 || status=$?
expect "policy that ctest misses" "Policy CMP0057 is not set" "$(grep -o 'Policy CMP0057 is not set' log | head -1)"
expect "error" 1 "$(grep -c 'Unknown arguments specified' log)"
expect "tests" "" "$(grep -o 'Total Tests: [1-9].*' log || true)"
expect "exit status is 0" no "$( ((status)) && echo no || echo yes)"
