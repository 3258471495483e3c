// Where the references of a JSON schema lead: $id and $anchor of all its schemas, JSON pointers
// with escapes, URIs relative to each other (RFC 3986, section 5.2). Nothing is fetched.
//
// Thread-safety: const after the constructor.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/grammar/schema/json_value.h"

namespace kvant::grammar {

class References {
 public:
  explicit References(const JsonValue& root);

  // The schema that a reference at `place` means; kInvalid for none, or one outside the text.
  Result<const JsonValue*> Resolve(const JsonValue& place, std::string_view reference) const;

 private:
  void Index(const JsonValue& schema, const std::string& base);

  bool ignores_beside_reference_;
  std::map<std::string, const JsonValue*, std::less<>> resources_;  // by URI, "" for the root
  std::map<std::string, const JsonValue*, std::less<>> anchors_;    // by URI#name
  std::map<const JsonValue*, std::string> bases_;                   // of schemas
};

// A reference relative to a base, both URIs without fragments.
std::string ResolvedUri(std::string_view base, std::string_view reference);

}  // namespace kvant::grammar
