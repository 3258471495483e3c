// The metadata of one architecture, read by key with every type and range checked.
//
// Errors (kCorrupt) name the file, the key, what was expected and what was found. Keys are given
// without the architecture's name: "block_count" is "llama.block_count". Every key that is asked
// for is remembered, so that a key that nobody reads can be found (engine/arch/keys/check_keys.h).
// All readers ask through Key. Thread-safety: none, since asking remembers.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/limits.h"
#include "formats/gguf.h"

namespace kvant::arch {

// Layers at the end of a file that predict further tokens (nextn_predict_layers).
enum class PredictingLayers : uint8_t { kLeftOut, kRead };

class Metadata {
 public:
  Metadata(const formats::GgufFile& file, std::string_view arch,
           PredictingLayers predicting = PredictingLayers::kLeftOut)
      : file_(file), arch_(arch), predicting_(predicting) {}

  const formats::GgufFile& file() const { return file_; }
  const std::string& arch() const { return arch_; }
  PredictingLayers predicting() const { return predicting_; }
  std::string Key(std::string_view name) const;
  // The names that were asked for so far, found or not.
  const std::set<std::string, std::less<>>& asked() const { return asked_; }
  bool Has(std::string_view name) const { return file_.Find(Key(name)) != nullptr; }

  // A required number in [1, max].
  Result<int64_t> Count(std::string_view name, uint32_t max) const;

  // An optional number in [1, max]; 0 counts as absent where that is the default.
  Result<int64_t> CountOr(std::string_view name, uint32_t max, int64_t otherwise) const;

  // One number in [1, max] for all layers, or an array with one per layer. A key that is absent is
  // an error where `otherwise` is empty.
  Result<std::vector<int64_t>> CountPerLayer(std::string_view name, size_t layers, uint32_t max,
                                             std::vector<int64_t> otherwise) const;

  // As CountPerLayer without `otherwise`, but an array may hold zeros.
  Result<std::vector<int64_t>> CountOrNonePerLayer(std::string_view name, size_t layers,
                                                   uint32_t max) const;

  // An array of booleans or of the integers 0 and 1, one per layer; nothing if the key is absent or
  // holds a whole number.
  Result<std::optional<std::vector<bool>>> FlagPerLayer(std::string_view name, size_t layers) const;

  // One number for all layers, or an array of 32-bit floats with one per layer; the key must be
  // there and its numbers finite.
  Result<std::vector<float>> NumberPerLayer(std::string_view name, size_t layers) const;

  // As NumberPerLayer, by a key that belongs to no architecture.
  Result<std::vector<float>> WholeKeyPerLayer(std::string_view key, size_t layers) const;
  // Such keys that were asked for so far.
  const std::set<std::string, std::less<>>& asked_whole() const { return asked_whole_; }

  // Optional and required positive finite numbers.
  Result<float> PositiveOr(std::string_view name, float otherwise) const;
  Result<float> Positive(std::string_view name) const;

  // "model.gguf: key llama.block_count is missing".
  Error Missing(std::string_view name) const;

 private:
  Result<std::vector<int64_t>> NumbersPerLayer(std::string_view name, size_t layers, uint32_t min,
                                               uint32_t max) const;
  Status CheckRange(std::string_view name, uint32_t value, uint32_t max) const;
  bool HasOnePerLayer(uint64_t count, size_t layers) const;
  Result<std::vector<float>> FloatsPerLayer(const std::string& key, size_t layers) const;

  const formats::GgufFile& file_;
  std::string arch_;
  PredictingLayers predicting_;
  mutable std::set<std::string, std::less<>> asked_;
  mutable std::set<std::string, std::less<>> asked_whole_;
};

}  // namespace kvant::arch
