#include "formats/hash_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "formats/model_hash.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

constexpr std::string_view kHashName = "xxh64";
constexpr std::string_view kSpaces = " \t\r";
constexpr size_t kHashDigits = 16;

// The next word of a line, which loses it.
std::string_view TakeWord(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kSpaces));
  line.remove_prefix(word.size());
  return word;
}

std::string_view Trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

}  // namespace

Result<HashManifest> ParseHashManifest(std::string_view text, const std::string& file) {
  HashManifest manifest;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (TakeWord(line) != kHashName) continue;
    const std::string_view digits = TakeWord(line);
    uint64_t hash = 0;
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
    const std::string_view name = Trim(line);
    if (digits.size() != kHashDigits || error != std::errc() ||
        stop != digits.data() + digits.size() || name.empty()) {
      return MakeError(ErrorCode::kCorrupt, "{}:{}: expected {}, {} hexadecimal digits and a name",
                       file, number, kHashName, kHashDigits);
    }
    // Names of tensors hold no colon, paths may.
    const size_t colon = name.rfind(':');
    if (colon == std::string_view::npos) {
      manifest.model = hash;
      continue;
    }
    const std::string_view tensor = name.substr(colon + 1);
    const auto [entry, added] = manifest.tensors.emplace(tensor, hash);
    if (!added && entry->second != hash) {
      return MakeError(ErrorCode::kCorrupt, "{}:{}: tensor {} has another hash further up", file,
                       number, Quoted(tensor));
    }
  }
  if (manifest.tensors.empty() && !manifest.model.has_value()) {
    return MakeError(ErrorCode::kCorrupt, "{}: no {} line in it, expected a manifest of hashes",
                     file, kHashName);
  }
  return manifest;
}

std::string HashManifestLine(uint64_t hash, std::string_view name) {
  return fmt::format("{:<8}  {}  {}\n", kHashName, HashHex(hash), name);
}

HashComparison CompareHashes(const HashManifest& manifest,
                             const std::map<std::string, uint64_t, std::less<>>& tensors,
                             uint64_t model) {
  HashComparison out;
  for (const auto& [name, hash] : manifest.tensors) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      out.missing.push_back(name);
    } else if (found->second != hash) {
      out.differing.push_back(name);
    }
  }
  // A manifest may hold the model's hash alone.
  for (const auto& [name, hash] : tensors) {
    if (!manifest.tensors.empty() && !manifest.tensors.contains(name)) out.added.push_back(name);
  }
  out.model_differs = manifest.model.has_value() && *manifest.model != model;
  return out;
}

}  // namespace kvant::formats
