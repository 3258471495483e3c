// Vectors and scores as the JSON of answers. Numbers are the shortest decimals that read back as
// the same float.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/json.h"

namespace kvant::tools {

enum class VectorEncoding : uint8_t {
  kNumbers,
  kBase64,  // of little-endian float32, as one text
};

// The vectors of texts, [rows of all texts][columns].
struct AnsweredVectors {
  std::span<const float> values;
  std::span<const int64_t> rows;  // of each text
};

// OpenAI's {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], ...}; each
// text has one row.
std::string EmbeddingsText(const AnsweredVectors& vectors, VectorEncoding encoding,
                           std::string_view model, int64_t tokens);
// llama-server's own [{"index", "embedding": [row, ...]}, ...].
std::string RowsText(const AnsweredVectors& vectors);

// A document's place among those of the request, and its score.
struct RankedDocument {
  int64_t index = 0;
  float score = 0;
};

enum class DocumentUse : uint8_t { kLeftOut, kShown };

// {"object": "list", "results": [{"index", "relevance_score", "document": {"text"}}], ...}
std::string RankingText(std::span<const RankedDocument> ranked,
                        std::span<const std::string> documents, DocumentUse use,
                        std::string_view model, int64_t tokens);
// [{"index", "score", "text"}], as text-embeddings-inference has it.
std::string ScoresText(std::span<const RankedDocument> ranked,
                       std::span<const std::string> documents, DocumentUse use);

}  // namespace kvant::tools
