// The page to chat on. Its headers let it load nothing but its own files and talk to nobody but
// this server, and let no other page show it in a frame.
#include <algorithm>
#include <string>
#include <utility>

#include "tools/serve/endpoints.h"
#include "tools/serve/page/page_files.h"

namespace kvant::tools {
namespace {

// Trusted types of an empty list: a browser refuses a script that would make HTML of a text.
constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

// Whether If-None-Match has the tag: "*", or a list of tags, weak ones too.
bool HasTag(std::string_view list, std::string_view tag) {
  while (!list.empty()) {
    std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == "*" || one == tag) return true;
  }
  return false;
}

}  // namespace

void AnswerPage(ServerContext&, Exchange exchange) {
  const auto files = PageFiles();
  const auto file = std::ranges::find(files, exchange.route, &PageFile::path);
  HttpAnswer answer;
  answer.headers = {{"ETag", std::string(file->etag)},
                    {"Cache-Control", "no-cache"},
                    {"Content-Security-Policy", std::string(kPagePolicy)},
                    {"Referrer-Policy", "no-referrer"},
                    {"X-Frame-Options", "DENY"},
                    {"Cross-Origin-Opener-Policy", "same-origin"},
                    {"Cross-Origin-Resource-Policy", "same-origin"}};
  const std::string* const known = exchange.request.Find("if-none-match");
  if (known != nullptr && HasTag(*known, file->etag)) {
    answer.status = 304;
  } else {
    answer.headers.push_back({"Content-Type", std::string(file->type)});
    answer.body = file->bytes;
  }
  exchange.Send(std::move(answer));
}

}  // namespace kvant::tools
