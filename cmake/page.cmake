# Puts the files of the page that `kvant serve` shows into the program. Included after kvant_cli; a new
# file of the page needs no line here.
set(page_folder ${CMAKE_SOURCE_DIR}/tools/serve/page)
file(GLOB page_files CONFIGURE_DEPENDS
  ${page_folder}/*.html ${page_folder}/*.css ${page_folder}/*.js ${page_folder}/*.svg)
set(page_source ${CMAKE_BINARY_DIR}/generated/page_files.cpp)
add_custom_command(OUTPUT ${page_source}
  COMMAND ${CMAKE_COMMAND} "-DFILES=${page_files}" -DOUT=${page_source}
          -P ${CMAKE_SOURCE_DIR}/cmake/write_page.cmake
  DEPENDS ${CMAKE_SOURCE_DIR}/cmake/write_page.cmake ${page_files}
  COMMENT "Writing the page" VERBATIM)
target_sources(kvant_cli PRIVATE ${page_source})
set_source_files_properties(${page_source} PROPERTIES
  SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
