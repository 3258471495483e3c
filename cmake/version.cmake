# Generates the source of base/version.h. The version of every library is known when CMake runs; the
# commit lives in a header of its own that is written again only when git's log of HEAD changes, so
# that a commit costs one small compilation and no configuration. Included after all find_package
# calls; expects the targets and variables they set.

set(generated_dir ${CMAKE_BINARY_DIR}/generated)

# Appends {"name", version}; `used` is whether this build links the library.
function(kvant_library_version name used version)
  if(NOT used)
    set(version absent)
  endif()
  string(APPEND kvant_library_versions "       {\"${name}\", \"${version}\"},\n")
  set(kvant_library_versions "${kvant_library_versions}" PARENT_SCOPE)
endfunction()
kvant_library_version(fmt YES "${fmt_VERSION}")
kvant_library_version(nlohmann-json YES "${nlohmann_json_VERSION}")
kvant_library_version(PCRE2 YES "${pcre2_VERSION}")
kvant_library_version(xxHash YES "${xxhash_VERSION}")
kvant_library_version(zlib YES "${zlib_VERSION}")
if(KVANT_ONEDNN AND oneDNN_FOUND)
  set(onednn_used YES)
endif()
if(KVANT_OPENBLAS AND openblas_FOUND)
  set(openblas_used YES)
endif()
kvant_library_version(oneDNN "${onednn_used}" "${oneDNN_VERSION}")
kvant_library_version(OpenBLAS "${openblas_used}" "${openblas_VERSION}")
string(STRIP "${CMAKE_BUILD_TYPE} ${KVANT_SANITIZE}" kvant_build_type)
configure_file(base/version.cpp.in ${generated_dir}/version.cpp @ONLY)

# In a worktree or submodule .git is a file, and git itself says where its log is.
set(head_log "")
if(EXISTS ${CMAKE_SOURCE_DIR}/.git)
  foreach(git_file logs/HEAD HEAD)
    execute_process(COMMAND git rev-parse --git-path ${git_file}
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
      OUTPUT_VARIABLE head_log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    cmake_path(ABSOLUTE_PATH head_log BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    if(EXISTS ${head_log} AND NOT IS_DIRECTORY ${head_log})
      break()
    endif()
    set(head_log "")
  endforeach()
endif()
add_custom_command(OUTPUT ${generated_dir}/kvant_commit.h
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUT=${generated_dir}/kvant_commit.h
          -P ${CMAKE_SOURCE_DIR}/cmake/write_commit.cmake
  DEPENDS ${CMAKE_SOURCE_DIR}/cmake/write_commit.cmake ${head_log}
  COMMENT "Reading the commit" VERBATIM)

target_sources(kvant PRIVATE ${generated_dir}/version.cpp ${generated_dir}/kvant_commit.h)
target_include_directories(kvant PRIVATE ${generated_dir})
