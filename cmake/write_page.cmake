# Writes the source OUT of tools/serve/page/page_files.h with the bytes of all FILES.
set(types
  "html=text/html\; charset=utf-8" "css=text/css\; charset=utf-8"
  "js=text/javascript\; charset=utf-8" "svg=image/svg+xml")
set(arrays "")
set(rows "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  get_filename_component(ending ${file} LAST_EXT)
  string(SUBSTRING ${ending} 1 -1 ending)
  set(type "")
  foreach(row IN LISTS types)
    if(row MATCHES "^${ending}=(.*)$")
      set(type "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  set(path "/page/${name}")
  if(name STREQUAL index.html)
    set(path "/")
  endif()
  string(MAKE_C_IDENTIFIER "kBytesOf_${name}" array)
  file(SHA256 ${file} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  file(SIZE ${file} size)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char ${array}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${path}\", \"${type}\", \"\\\"${hash}\\\"\", "
    "Text(${array}, ${size})},\n")
endforeach()
file(WRITE ${OUT} "// Written by cmake/write_page.cmake.
#include \"tools/serve/page/page_files.h\"

namespace kvant::tools {
namespace {

${arrays}
std::string_view Text(const unsigned char* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

const PageFile kPageFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> PageFiles() { return kPageFiles; }

}  // namespace kvant::tools
")
