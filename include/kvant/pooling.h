// How one vector is made of the rows of a text. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvant {

// The numbers are those of the key ARCHITECTURE.pooling_type.
enum class Pooling : uint8_t {
  kNone = 0,  // every token keeps its row
  kMean = 1,
  kCls = 2,   // the row of the first token
  kLast = 3,  // the row of the last token
  kRank = 4,  // no vector but logits, by the classifier of the file
};

// Reads "none", "mean", "cls", "last" or "rank"; nothing for another word.
std::optional<Pooling> ParsePooling(std::string_view text);
std::string_view PoolingName(Pooling pooling);

}  // namespace kvant
