// Who may use the server: keys, and the names and pages that requests may come by.
//
// A program on this machine that listens for it alone can still be reached by any page that a
// browser shows, if the page's name leads here (DNS rebinding), or by a form. So Host must be a
// name of this machine, and a request of another page is refused unless the page is listed.
//
// Only digests of keys are kept. A key is compared with all of them, each as a whole, so that the
// time tells nothing of a key but its length.
//
// Thread-safety: const after it was made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "kvant/result.h"
#include "tools/serve/http/http_message.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

struct AccessRules {
  std::vector<std::string> keys;     // one of them is needed; empty: none is
  std::vector<std::string> origins;  // pages that may use the server: "https://example.org"
  bool local_names_only = false;     // only this machine reaches the server
};

class Access {
 public:
  explicit Access(AccessRules rules);

  // 403 where Host or Origin is another one's.
  Refusal CheckOrigin(const HttpRequest& request) const;
  // 401 without a key that is known: Authorization: Bearer KEY, or X-Api-Key: KEY.
  Refusal CheckKey(const HttpRequest& request) const;
  // Lets the page read the answer, if it is listed.
  void AddHeaders(const HttpRequest& request, HttpAnswer& answer) const;

 private:
  bool IsOwnName(std::string_view host) const;
  bool IsListed(const std::string& origin) const;
  bool IsKey(std::string_view key) const;

  AccessRules rules_;  // without the keys
  std::vector<Sha256Digest> keys_;
  std::string machine_;  // its name, in lower case
};

// The keys of a file, one a line; empty lines and lines that begin with # are none. kIo where it
// cannot be read, and where others than its owner may read it; kInvalid without a key.
Result<std::vector<std::string>> ReadKeys(const std::string& path);

}  // namespace kvant::tools
