// The manifests of llama-gguf-hash: lines "xxh64  HASH  MODEL:TENSOR" for each tensor and
// "xxh64  HASH  MODEL" for the whole model. Lines of other hashes (sha1, sha256, uuid) are left
// aside, as are comments.
//
// A manifest names the model by the path it had when it was written; a check compares the names of
// tensors alone, so that a file may have moved. Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::formats {

struct HashManifest {
  std::map<std::string, uint64_t, std::less<>> tensors;
  std::optional<uint64_t> model;
};

// kCorrupt, with the line, for an xxh64 line that is malformed, a tensor with two different hashes,
// or a text without any xxh64 line. `file` is used in messages.
Result<HashManifest> ParseHashManifest(std::string_view text, const std::string& file);

// One line of a manifest, ended.
std::string HashManifestLine(uint64_t hash, std::string_view name);

// The differences that a check found; everything is as the manifest says if all are empty and
// model_differs is false.
struct HashComparison {
  std::vector<std::string> differing;  // tensors with another hash
  std::vector<std::string> missing;    // in the manifest but not in the model
  std::vector<std::string> added;      // in the model but not in the manifest
  bool model_differs = false;          // the hash over all tensors, where the manifest has it

  bool same() const {
    return differing.empty() && missing.empty() && added.empty() && !model_differs;
  }
};

HashComparison CompareHashes(const HashManifest& manifest,
                             const std::map<std::string, uint64_t, std::less<>>& tensors,
                             uint64_t model);

}  // namespace kvant::formats
