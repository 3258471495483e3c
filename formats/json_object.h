// A JSON object of a named file, read by key with every type and range checked. JSON's null counts
// as absent, as it does in the files of Hugging Face folders.
//
// Errors (kCorrupt) name the file, the key, what was expected and what was found. Users include
// <nlohmann/json.hpp>. Thread-safety: const after Read; may be shared freely.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/json.h"

namespace kvant::formats {

class JsonObject {
 public:
  // An object without keys, for a file that is absent.
  explicit JsonObject(std::string file);

  // The whole file, which must hold an object.
  static Result<JsonObject> Read(const std::string& path);
  static Result<JsonObject> Parse(std::string_view text, const std::string& file);

  // The value of a key, null if it is absent.
  const Json* Find(std::string_view key) const;

  // All keys, in alphabetical order.
  std::vector<std::string> Keys() const;

  // The value of a key, nothing if it is absent. Numbers must lie in [0, max] or be finite.
  Result<std::optional<int64_t>> Integer(std::string_view key, int64_t max) const;
  Result<std::optional<double>> Number(std::string_view key) const;
  Result<std::optional<std::vector<float>>> Numbers(std::string_view key) const;
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::string>> String(std::string_view key) const;
  Result<std::optional<JsonObject>> Object(std::string_view key) const;

  // A whole number in [1, max]; kCorrupt if it is absent.
  Result<int64_t> Count(std::string_view key, int64_t max) const;

  // This object with the keys of another one, whose values count where both have a key.
  JsonObject With(const JsonObject& other) const;

  // The file, and the keys that lead to this object.
  const std::string& where() const { return where_; }
  std::string Where(std::string_view key) const;

  // "config.json: hidden_size is "x", expected ...".
  Error Wrong(std::string_view key, std::string_view expected) const;

 private:
  JsonObject(std::shared_ptr<const Json> json, std::string where);

  std::shared_ptr<const Json> json_;  // within the tree of the file, which it keeps alive
  std::string where_;
};

}  // namespace kvant::formats
