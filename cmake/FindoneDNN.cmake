# Finds oneDNN as the imported target oneDNN::dnnl, with oneDNN_VERSION. The package file that Debian
# ships is not used: it requires OpenCL's development files, which libdnnl-dev does not install and
# kvant does not need. Also installed beside kvant-config.cmake.
include(FindPackageHandleStandardArgs)
find_path(oneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(oneDNN_LIBRARY dnnl)

if(oneDNN_INCLUDE_DIR)
  file(STRINGS ${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h lines REGEX "#define DNNL_VERSION_")
  foreach(part MAJOR MINOR PATCH)
    string(REGEX REPLACE ".*DNNL_VERSION_${part} ([0-9]+).*" "\\1" ${part} "${lines}")
  endforeach()
  set(oneDNN_VERSION ${MAJOR}.${MINOR}.${PATCH})
endif()
find_package_handle_standard_args(oneDNN
  REQUIRED_VARS oneDNN_LIBRARY oneDNN_INCLUDE_DIR VERSION_VAR oneDNN_VERSION)

if(oneDNN_FOUND AND NOT TARGET oneDNN::dnnl)
  add_library(oneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(oneDNN::dnnl PROPERTIES
    IMPORTED_LOCATION ${oneDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${oneDNN_INCLUDE_DIR})
endif()
