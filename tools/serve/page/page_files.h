// The files of the page to chat on, as they lie in this folder. cmake/page.cmake puts them into the
// program, so that it needs no other file.
//
// Thread-safety: constants.
#pragma once

#include <span>
#include <string_view>

namespace kvant::tools {

struct PageFile {
  std::string_view path;  // "/" or "/page/NAME"
  std::string_view type;  // "text/css; charset=utf-8"
  std::string_view etag;  // a hash of the bytes, in quotes
  std::string_view bytes;
};

std::span<const PageFile> PageFiles();

}  // namespace kvant::tools
