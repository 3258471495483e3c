# With KVANT_SANITIZE_FOLDERS=base;engine/kv a sanitized build compiles only the files of such folders
# ("engine": the files that stand in engine/ itself) and takes what is left from the release build,
# whose test objects it takes as well. An archive gives only members that are still wanted, so the
# folders must be whole groups of cmake/unity.cmake: none of their symbols is wanted then.
set(KVANT_SANITIZE_FOLDERS "" CACHE STRING "Folders to compile with sanitizers; all where empty")
set(kvant_rest_library ${CMAKE_SOURCE_DIR}/build/release/libkvant.a)

# kvant_keep_folders(VARIABLE): leaves the sources of the folders in a list.
function(kvant_keep_folders variable)
  if(NOT KVANT_SANITIZE_FOLDERS)
    return()
  endif()
  set(kept)
  foreach(folder base ${KVANT_SANITIZE_FOLDERS})  # base, so that there is something
    set(of_folder ${${variable}})
    if(folder STREQUAL engine)
      list(FILTER of_folder INCLUDE REGEX "^engine/[^/]*$")
    else()
      list(FILTER of_folder INCLUDE REGEX "^${folder}/")
    endif()
    list(APPEND kept ${of_folder})
  endforeach()
  list(REMOVE_DUPLICATES kept)
  if(NOT kept)
    set(kept ${CMAKE_BINARY_DIR}/nothing.cpp)
    file(WRITE ${kept} "// No source is left to compile.\n")
  endif()
  set(${variable} ${kept} PARENT_SCOPE)
endfunction()

if(KVANT_SANITIZE_FOLDERS AND NOT EXISTS ${kvant_rest_library})
  message(FATAL_ERROR "KVANT_SANITIZE_FOLDERS: expected a release build, found no ${kvant_rest_library}")
endif()
