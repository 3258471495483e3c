# What `./dev dist` and `./dev wheel` give away: the program and the C library, linked from the objects of
# this build so that they run on any system with glibc 2.34. libstdc++, fmt, PCRE2, utf8proc, xxHash and
# zlib are part of both; oneDNN and OpenBLAS are left out. Included after version.cmake, install.cmake and
# package.cmake. The target kvant_dist, which is not part of `all`, installs the program and the library
# with manual, models, headers and licenses into BUILD/dist/prefix.
if(NOT TARGET kvant_manual OR NOT TARGET kvant_shared OR NOT CMAKE_BUILD_TYPE STREQUAL Release
   OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  return()
endif()
set(missing)
if(NOT fmt_VERSION VERSION_GREATER_EQUAL 9 OR NOT fmt_VERSION VERSION_LESS 10)
  list(APPEND missing "fmt 9")  # the templates of cmake/dist/fmt.cpp are those of this version
endif()
set(kvant_static_libraries)
foreach(name libpcre2-8.a libutf8proc.a libxxhash.a libz.a)
  find_library(KVANT_${name} ${name})
  mark_as_advanced(KVANT_${name})
  if(KVANT_${name})
    list(APPEND kvant_static_libraries ${KVANT_${name}})
  else()
    list(APPEND missing ${name})
  endif()
endforeach()
string(REGEX MATCH "^[0-9]+" compiler_major "${CMAKE_CXX_COMPILER_VERSION}")
# What is linked statically, or compiled in from headers, comes with its license: NAME of PACKAGE.
set(kvant_dist_licenses "fmt of libfmt-dev" "pcre2 of libpcre2-dev" "utf8proc of libutf8proc-dev"
  "xxhash of libxxhash-dev" "zlib of zlib1g-dev" "nlohmann-json of nlohmann-json3-dev" "cli11 of libcli11-dev"
  "asio of libasio-dev"
  "libstdc++ of libstdc++-${compiler_major}-dev")
foreach(license IN LISTS kvant_dist_licenses)
  string(REPLACE " of " ";" license "${license}")
  list(GET license 0 name)
  list(GET license 1 package)
  set(file /usr/share/doc/${package}/copyright)
  if(EXISTS ${file})
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME ${name}
      COMPONENT dist EXCLUDE_FROM_ALL)
  else()
    list(APPEND missing ${file})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  add_custom_target(kvant_dist COMMAND ${CMAKE_COMMAND} -E echo "kvant_dist: not found: ${missing}"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  return()
endif()

# Of the objects of this build all but two: what knows of oneDNN and OpenBLAS is compiled once more.
set(kvant_dist_versions "${kvant_library_versions}")
foreach(name oneDNN OpenBLAS)
  string(REGEX REPLACE "{\"${name}\", \"[^\"]*\"}" "{\"${name}\", \"absent\"}"
    kvant_dist_versions "${kvant_dist_versions}")
endforeach()
block()
  set(kvant_library_versions "${kvant_dist_versions}")
  configure_file(base/version.cpp.in ${generated_dir}/dist/version.cpp @ONLY)
endblock()
add_library(kvant_dist_own OBJECT EXCLUDE_FROM_ALL
  cmake/dist/fmt.cpp cpu/float_gemm.cpp ${generated_dir}/dist/version.cpp ${generated_dir}/kvant_commit.h)
set_target_properties(kvant_dist_own PROPERTIES POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(kvant_dist_own PRIVATE
  ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include ${generated_dir})
target_link_libraries(kvant_dist_own PRIVATE kvant_options fmt::fmt PkgConfig::utf8proc)
add_library(kvant_dist_objects INTERFACE)
target_sources(kvant_dist_objects INTERFACE $<TARGET_OBJECTS:kvant_dist_own>
  $<FILTER:$<TARGET_OBJECTS:kvant>,EXCLUDE,/float_gemm|/version\\.cpp> $<TARGET_OBJECTS:kvant_once>)
target_link_libraries(kvant_dist_objects INTERFACE
  ${kvant_static_libraries} Threads::Threads ${CMAKE_DL_LIBS})
# Debian's libstdc++ has code that calls arc4random of glibc 2.36. kvant does not use that code, and
# --gc-sections leaves it out.
target_link_options(kvant_dist_objects INTERFACE -static-libstdc++ -Wl,--gc-sections -s)

set(kvant_dist_folder ${CMAKE_BINARY_DIR}/dist)
get_target_property(kvant_abi kvant_shared SOVERSION)
add_executable(kvant_dist_cli EXCLUDE_FROM_ALL $<TARGET_OBJECTS:kvant_cli>)
set_target_properties(kvant_dist_cli PROPERTIES OUTPUT_NAME kvant LINKER_LANGUAGE CXX
  RUNTIME_OUTPUT_DIRECTORY ${kvant_dist_folder}/linked)
target_link_libraries(kvant_dist_cli PRIVATE kvant_dist_objects)

add_library(kvant_dist_shared SHARED EXCLUDE_FROM_ALL)
set_target_properties(kvant_dist_shared PROPERTIES OUTPUT_NAME kvant LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${kvant_abi}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/kvant.map
  LIBRARY_OUTPUT_DIRECTORY ${kvant_dist_folder}/linked)
target_link_libraries(kvant_dist_shared PRIVATE kvant_dist_objects)
target_link_options(kvant_dist_shared PRIVATE
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/kvant.map -Wl,--no-undefined)

install(PROGRAMS $<TARGET_FILE:kvant_dist_cli> DESTINATION bin COMPONENT dist EXCLUDE_FROM_ALL)
install(FILES $<TARGET_FILE:kvant_dist_shared> $<TARGET_SONAME_FILE:kvant_dist_shared>
  $<TARGET_LINKER_FILE:kvant_dist_shared> DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dist
  EXCLUDE_FROM_ALL)

add_custom_target(kvant_dist
  COMMAND ${CMAKE_COMMAND} -DBUILD_DIR=${CMAKE_BINARY_DIR} -DPREFIX=${kvant_dist_folder}/prefix
          -P ${CMAKE_SOURCE_DIR}/cmake/dist/install.cmake
  COMMENT "Installing what is given away" VERBATIM)
add_dependencies(kvant_dist kvant_dist_cli kvant_dist_shared kvant_manual)
