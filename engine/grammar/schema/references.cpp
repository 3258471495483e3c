#include "engine/grammar/schema/references.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/grammar/schema/subschemas.h"
#include "formats/quoted.h"

namespace kvant::grammar {
namespace {

struct UriParts {
  std::string_view scheme;     // with its colon
  std::string_view authority;  // with its slashes
  std::string_view path;
};

UriParts PartsOfUri(std::string_view uri) {
  UriParts parts;
  const size_t colon = uri.find_first_of(":/?");
  if (colon != std::string_view::npos && colon > 0 && uri[colon] == ':') {
    parts.scheme = uri.substr(0, colon + 1);
    uri.remove_prefix(colon + 1);
  }
  if (uri.starts_with("//")) {
    const size_t end = std::min(uri.find_first_of("/?", 2), uri.size());
    parts.authority = uri.substr(0, end);
    uri.remove_prefix(end);
  }
  parts.path = uri;
  return parts;
}

// Without "." and ".." between slashes.
std::string WithoutDots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view word = path.substr(0, end);
    path.remove_prefix(end);
    if (word == "/." || word == "/..") {
      if (word == "/..")
        out.resize(out.find_last_of('/') == std::string::npos ? 0 : out.find_last_of('/'));
      if (path.empty()) out += '/';
    } else {
      out += word;
    }
  }
  return out;
}

std::string PercentDecoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The text of a keyword, or nothing.
std::string_view TextOf(const JsonValue& schema, std::string_view key) {
  const JsonValue* value = schema.Find(key);
  return value != nullptr && value->is(JsonValue::Kind::kString) ? std::string_view(value->text)
                                                                 : std::string_view();
}

}  // namespace

std::string ResolvedUri(std::string_view base, std::string_view reference) {
  const UriParts to = PartsOfUri(reference);
  if (!to.scheme.empty()) return std::string(reference);
  if (reference.empty()) return std::string(base);
  const UriParts from = PartsOfUri(base);
  if (!to.authority.empty()) return std::string(from.scheme) + std::string(reference);
  std::string path(to.path);
  if (!path.starts_with('/')) {
    const size_t slash = from.path.find_last_of('/');
    path = slash == std::string_view::npos ? (from.authority.empty() ? path : "/" + path)
                                           : std::string(from.path.substr(0, slash + 1)) + path;
  }
  return std::string(from.scheme) + std::string(from.authority) + WithoutDots(path);
}

References::References(const JsonValue& root)
    : ignores_beside_reference_(TextOf(root, "$schema").find("/draft-0") !=
                                std::string_view::npos) {
  resources_.emplace("", &root);
  Index(root, "");
}

void References::Index(const JsonValue& schema, const std::string& base) {
  std::string here = base;
  std::string_view id = TextOf(schema, "$id");
  if (id.empty()) id = TextOf(schema, "id");
  // Up to draft 7 a $id that is only a fragment is an anchor, and one beside $ref does not count.
  if (ignores_beside_reference_ && schema.Find("$ref") != nullptr) id = {};
  const size_t hash = std::min(id.find('#'), id.size());
  if (!id.empty() && hash > 0) {
    here = ResolvedUri(base, id.substr(0, hash));
    resources_.emplace(here, &schema);
  }
  if (!id.empty() && hash + 1 < id.size()) {
    anchors_.emplace(here + std::string(id.substr(hash)), &schema);
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    const std::string_view anchor = TextOf(schema, key);
    if (!anchor.empty()) anchors_.emplace(here + "#" + std::string(anchor), &schema);
  }
  bases_[&schema] = here;
  ForEachSubschema(schema, [&](const JsonValue& inner) { Index(inner, here); });
}

Result<const JsonValue*> References::Resolve(const JsonValue& place,
                                             std::string_view reference) const {
  const auto known_base = bases_.find(&place);
  const std::string base = known_base == bases_.end() ? "" : known_base->second;
  const size_t hash = std::min(reference.find('#'), reference.size());
  const std::string uri = ResolvedUri(base, reference.substr(0, hash));
  const std::string fragment =
      PercentDecoded(hash < reference.size() ? reference.substr(hash + 1) : "");
  const auto resource = resources_.find(uri);
  if (resource == resources_.end()) {
    return MakeError(ErrorCode::kNotSupported,
                     "expected a reference into this schema, found {}: nothing is fetched",
                     formats::Quoted(reference));
  }
  const JsonValue* found = nullptr;
  if (fragment.empty()) {
    found = resource->second;
  } else if (fragment[0] == '/') {
    found = FindByPointer(*resource->second, fragment);
  } else {
    const auto anchor = anchors_.find(uri + "#" + fragment);
    found = anchor == anchors_.end() ? nullptr : anchor->second;
  }
  if (found == nullptr || (!found->is_bool() && !found->is(JsonValue::Kind::kObject))) {
    return MakeError(ErrorCode::kInvalid, "expected a reference to a schema, found {}, which is {}",
                     formats::Quoted(reference), found == nullptr ? "not there" : "none");
  }
  return found;
}

}  // namespace kvant::grammar
