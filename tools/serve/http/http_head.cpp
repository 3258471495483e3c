#include "tools/serve/http/http_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace kvant::tools {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kLineRest = 64;  // bytes of a request line beside its target, at most

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// A character of a token of RFC 9110, 5.6.2.
bool IsTokenCharacter(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return IsDigit(c) || IsLetter(c) || kMarks.find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, IsTokenCharacter);
}

// A character of a header's value: no control character but the tab.
bool IsValueCharacter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7F);
}

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

HeadResult Wrong(int status, std::string message) {
  HeadResult result;
  result.state = HeadResult::State::kWrong;
  result.status = status;
  result.message = std::move(message);
  return result;
}

int HexValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Whether a path has no segment that leads elsewhere. An encoded slash is one once it is decoded.
bool IsPlainPath(std::string_view path) {
  if (path.empty() || path.front() != '/' || path.find('\\') != path.npos) return false;
  while (!path.empty()) {
    path.remove_prefix(1);
    const std::string_view segment = path.substr(0, path.find('/'));
    if (segment == "." || segment == "..") return false;
    path.remove_prefix(segment.size());
  }
  return true;
}

// The target's path and query; `authority` is set where the target has the form of a whole URL.
std::optional<std::string> ReadTarget(std::string_view target, HttpRequest& request,
                                      std::string& authority) {
  if (target == "*" && request.method == "OPTIONS") {
    request.path = "*";
    return {};
  }
  constexpr std::string_view kScheme = "http://";
  if (LowerCase(target.substr(0, kScheme.size())) == kScheme) {
    target.remove_prefix(kScheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    authority = target.substr(0, end);
    target.remove_prefix(end);
    if (authority.empty()) return "the target names no host";
  }
  const size_t mark = target.find('?');
  std::string_view path = target.substr(0, mark);
  if (path.empty() && !authority.empty()) path = "/";
  if (!PercentDecode(path, PlusSign::kItself, &request.path) || !IsPlainPath(request.path)) {
    return "the path is not one of a resource";
  }
  if (mark == target.npos) return {};
  std::string_view query = target.substr(mark + 1);
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const size_t equals = std::min(part.find('='), part.size());
    auto& [key, value] = request.query.emplace_back();
    if (!PercentDecode(part.substr(0, equals), PlusSign::kSpace, &key) ||
        !PercentDecode(part.substr(std::min(part.size(), equals + 1)), PlusSign::kSpace, &value)) {
      return "the query is not encoded properly";
    }
  }
  return {};
}

// The request line: METHOD SP TARGET SP HTTP/1.x.
std::optional<HeadResult> ReadRequestLine(std::string_view line, HttpRequest& request,
                                          std::string& authority) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == line.npos || first == last) return Wrong(400, "the request line is not complete");
  request.method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(request.method)) return Wrong(400, "the method is no token");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return Wrong(400, "expected HTTP/1.1 or HTTP/1.0 in the request line");
  }
  request.minor_version = version.back() - '0';
  if (target.size() > kTargetBytesMax) {
    return Wrong(414, fmt::format("the target has {} bytes, expected at most {}", target.size(),
                                  kTargetBytesMax));
  }
  const auto is_plain = [](char c) { return c > 0x20 && c < 0x7F; };
  if (target.empty() || !std::ranges::all_of(target, is_plain)) {
    return Wrong(400, "the target has characters that must be percent-encoded");
  }
  if (const auto message = ReadTarget(target, request, authority)) return Wrong(400, *message);
  return {};
}

std::optional<HeadResult> ReadHeaderLine(std::string_view line, HttpRequest& request) {
  if (line.front() == ' ' || line.front() == '\t') return Wrong(400, "a header line is folded");
  const size_t colon = line.find(':');
  if (colon == line.npos || !IsToken(line.substr(0, colon))) {
    return Wrong(400, "a header line does not begin with a name and a colon");
  }
  const std::string_view value = WithoutBlanks(line.substr(colon + 1));
  if (!std::ranges::all_of(value, IsValueCharacter)) {
    return Wrong(400, "a header's value has a control character");
  }
  if (request.headers.size() == kHeadersMax) {
    return Wrong(431, fmt::format("there are more than {} headers", kHeadersMax));
  }
  request.headers.push_back({LowerCase(line.substr(0, colon)), std::string(value)});
  return {};
}

// How long the body is, and how its end is told.
std::optional<HeadResult> ReadLength(HttpHead& head, uint64_t body_max) {
  const HttpRequest& request = head.request;
  const size_t lengths = request.Count("content-length");
  const size_t encodings = request.Count("transfer-encoding");
  if (lengths + encodings > 1) {
    return Wrong(400, "expected one Content-Length or one Transfer-Encoding");
  }
  if (encodings == 1) {
    if (request.minor_version == 0 || LowerCase(*request.Find("transfer-encoding")) != "chunked") {
      return Wrong(400, "Transfer-Encoding: expected chunked, in HTTP/1.1");
    }
    head.chunked = true;
  }
  if (lengths == 1) {
    const std::string& digits = *request.Find("content-length");
    constexpr size_t kDigitsMax = 18;  // so that the number has 64 bits
    if (digits.empty() || digits.size() > kDigitsMax || !std::ranges::all_of(digits, IsDigit)) {
      return Wrong(400, "Content-Length: expected a number");
    }
    head.length = std::stoull(digits);
    if (head.length > body_max) {
      return Wrong(
          413, fmt::format("the body has {} bytes, expected at most {}", head.length, body_max));
    }
  }
  return {};
}

// Reads what the client wants of the connection.
std::optional<HeadResult> ReadWishes(HttpHead& head) {
  const HttpRequest& request = head.request;
  head.keeps_alive = request.minor_version == 1;
  for (const HttpHeader& header : request.headers) {
    if (header.name != "connection") continue;
    const std::string value = LowerCase(header.value);
    if (value.find("close") != value.npos) {
      head.keeps_alive = false;
      break;
    }
    if (value.find("keep-alive") != value.npos) head.keeps_alive = true;
  }
  const std::string* const expect = request.Find("expect");
  if (expect == nullptr) return {};
  if (LowerCase(*expect) != "100-continue") {
    return Wrong(417, "Expect: expected 100-continue");
  }
  head.expects_continue = request.minor_version == 1;
  return {};
}

// There is one Host, and it is that of the target where the target is a whole URL.
std::optional<HeadResult> CheckHost(const HttpRequest& request, const std::string& authority) {
  const size_t hosts = request.Count("host");
  if (hosts > 1 || (hosts == 0 && request.minor_version == 1)) {
    return Wrong(400, "expected one Host");
  }
  if (!authority.empty() && hosts == 1 &&
      LowerCase(*request.Find("host")) != LowerCase(authority)) {
    return Wrong(400, "the target's host is not that of Host");
  }
  return {};
}

}  // namespace

bool PercentDecode(std::string_view text, PlusSign plus, std::string* out) {
  out->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus == PlusSign::kSpace) c = ' ';
    if (c == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = HexValue(text[i + 1]);
      const int low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return false;
    out->push_back(c);
  }
  return true;
}

HeadResult ParseHead(std::string_view bytes, uint64_t body_max) {
  const std::string_view head_bytes = bytes.substr(0, kHeadBytesMax);
  // A lone CR or LF would be a line end for some and none for others.
  const size_t lone = head_bytes.find('\n');
  if (lone != head_bytes.npos && (lone == 0 || head_bytes[lone - 1] != '\r')) {
    return Wrong(400, "a line does not end with CR LF");
  }
  if (std::min(lone, head_bytes.size()) > kTargetBytesMax + kLineRest) {
    return Wrong(414, fmt::format("the target has more than {} bytes", kTargetBytesMax));
  }
  const size_t end = head_bytes.find("\r\n\r\n");
  if (end == head_bytes.npos) {
    if (bytes.size() < kHeadBytesMax) return {};
    return Wrong(431, fmt::format("the head has more than {} bytes", kHeadBytesMax));
  }
  HeadResult result;
  HttpRequest& request = result.head.request;
  std::string authority;
  std::string_view lines = head_bytes.substr(0, end + kLineEnd.size());
  for (bool is_first = true; !lines.empty(); is_first = false) {
    const std::string_view line = lines.substr(0, lines.find(kLineEnd));
    lines.remove_prefix(line.size() + kLineEnd.size());
    if (line.empty()) return Wrong(400, "the request line is empty");
    if (line.find_first_of("\r\n") != line.npos) {
      return Wrong(400, "a line does not end with CR LF");
    }
    if (auto wrong =
            is_first ? ReadRequestLine(line, request, authority) : ReadHeaderLine(line, request)) {
      return *std::move(wrong);
    }
  }
  if (auto wrong = CheckHost(request, authority)) return *std::move(wrong);
  if (auto wrong = ReadLength(result.head, body_max)) return *std::move(wrong);
  if (auto wrong = ReadWishes(result.head)) return *std::move(wrong);
  result.state = HeadResult::State::kDone;
  result.bytes = end + 2 * kLineEnd.size();
  return result;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Unknown";
  }
}

}  // namespace kvant::tools
