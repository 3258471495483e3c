#include "tools/serve/access.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/result.h"

namespace kvant::tools {
namespace {

constexpr size_t kKeyBytesMax = 4096;  // longer ones are wrong without a look

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

bool AreDigits(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// The name of "name:port" or "[v6]:port".
std::string_view WithoutPort(std::string_view host) {
  const size_t end = host.starts_with('[') ? host.find(']') : host.npos;
  const size_t colon = host.find(':', end == host.npos ? 0 : end);
  if (colon == host.npos || !AreDigits(host.substr(colon + 1))) return host;
  return host.substr(0, colon);
}

bool IsLoopbackNumber(std::string_view host) {
  return host.starts_with("127.") && std::ranges::count(host, '.') == 3 &&
         std::ranges::all_of(host, [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

}  // namespace

Access::Access(AccessRules rules) : rules_(std::move(rules)) {
  for (std::string& key : rules_.keys) {
    keys_.push_back(Sha256(key));
    std::ranges::fill(key, '\0');
  }
  rules_.keys.clear();
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) == 0) machine_ = Lower(name);
}

bool Access::IsOwnName(std::string_view host) const {
  const std::string name = Lower(WithoutPort(host));
  return name == "localhost" || name.ends_with(".localhost") || name == "[::1]" ||
         IsLoopbackNumber(name) || (!machine_.empty() && name == machine_);
}

bool Access::IsListed(const std::string& origin) const {
  return std::ranges::find(rules_.origins, origin) != rules_.origins.end();
}

bool Access::IsKey(std::string_view key) const {
  if (key.empty() || key.size() > kKeyBytesMax) return false;
  const Sha256Digest digest = Sha256(key);
  unsigned found = 0;
  for (const Sha256Digest& known : keys_) {
    unsigned differs = 0;
    for (size_t i = 0; i < digest.size(); ++i) {
      differs |= static_cast<unsigned>(digest[i] ^ known[i]);
    }
    found |= (differs - 1U) >> 31;  // 1 where no bit differs
  }
  return found != 0;
}

Refusal Access::CheckOrigin(const HttpRequest& request) const {
  const std::string* const host = request.Find("host");
  ApiError error;
  error.status = 403;
  if (rules_.local_names_only && host != nullptr && !IsOwnName(*host)) {
    error.message = "Host: expected a name of this machine, such as localhost";
    return error;
  }
  const std::string* const origin = request.Find("origin");
  if (origin == nullptr || request.method == "GET" || request.method == "HEAD" ||
      request.method == "OPTIONS" || IsListed(*origin)) {
    return {};
  }
  const size_t name = origin->find("://");
  const bool is_own =
      host != nullptr && name != origin->npos && Lower(origin->substr(name + 3)) == Lower(*host);
  if (is_own) return {};
  error.message = "Origin: the page is not one of --cors-origins";
  return error;
}

Refusal Access::CheckKey(const HttpRequest& request) const {
  if (keys_.empty()) return {};
  bool found = false;
  bool wrong = false;
  for (const HttpHeader& header : request.headers) {
    std::string_view value = header.value;
    if (header.name == "authorization") {
      constexpr std::string_view kScheme = "bearer ";
      const bool is_bearer = Lower(value.substr(0, kScheme.size())) == kScheme;
      value.remove_prefix(is_bearer ? kScheme.size() : value.size());
    } else if (header.name != "x-api-key") {
      continue;
    }
    (IsKey(value) ? found : wrong) = true;
  }
  if (found && !wrong) return {};
  ApiError error;
  error.status = 401;
  error.message = wrong ? "the API key is wrong" : "expected an API key: Authorization: Bearer KEY";
  error.code = "invalid_api_key";
  return error;
}

void Access::AddHeaders(const HttpRequest& request, HttpAnswer& answer) const {
  const std::string* const origin = request.Find("origin");
  if (origin == nullptr || rules_.origins.empty()) return;
  answer.headers.push_back({"Vary", "Origin"});
  if (!IsListed(*origin)) return;
  answer.headers.push_back({"Access-Control-Allow-Origin", *origin});
  if (request.method != "OPTIONS") return;
  answer.headers.push_back({"Access-Control-Allow-Methods", "GET, POST"});
  answer.headers.push_back(
      {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id"});
  answer.headers.push_back({"Access-Control-Max-Age", "600"});
}

Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  struct stat status = {};
  std::ifstream file(path);
  if (!file || stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return MakeError(ErrorCode::kIo, "--api-key-file: cannot read '{}'", path);
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return MakeError(ErrorCode::kIo,
                     "--api-key-file: others than its owner may use '{}'; 'chmod 600' keeps them "
                     "out",
                     path);
  }
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(std::move(line));
  }
  if (keys.empty()) {
    return MakeError(ErrorCode::kInvalid, "--api-key-file: '{}' has no key", path);
  }
  return keys;
}

}  // namespace kvant::tools
