// A request and an answer of HTTP/1.1, as the server hands them on and takes them.
//
// Thread-safety: values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvant::tools {

struct HttpHeader {
  std::string name;  // of requests: in lower case
  std::string value;
};

struct HttpRequest {
  std::string method;
  std::string path;  // of the target, percent-decoded, without the query
  std::vector<std::pair<std::string, std::string>> query = {};  // decoded
  int minor_version = 1;                                        // HTTP/1.0 or HTTP/1.1
  std::vector<HttpHeader> headers = {};
  std::string body = {};

  // The value of the first header of this name, in lower case; null where there is none.
  const std::string* Find(std::string_view name) const {
    for (const HttpHeader& header : headers) {
      if (header.name == name) return &header.value;
    }
    return nullptr;
  }
  size_t Count(std::string_view name) const {
    size_t count = 0;
    for (const HttpHeader& header : headers) count += header.name == name ? 1 : 0;
    return count;
  }
  // The value of a parameter of the query, "" where it is not there.
  std::string Parameter(std::string_view name) const {
    for (const auto& [key, value] : query) {
      if (key == name) return value;
    }
    return "";
  }
};

// The server adds Content-Length, Transfer-Encoding, Connection and Date.
struct HttpAnswer {
  int status = 200;
  std::vector<HttpHeader> headers = {};
  std::string body = {};
};

// "Not Found" for 404.
std::string_view ReasonPhrase(int status);

}  // namespace kvant::tools
