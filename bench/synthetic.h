// Llama models of named shapes with random weights, written to a file: what a machine does with a
// model of that size, without a download.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "quant/format.h"

namespace kvant::bench {

struct SyntheticShape {
  std::string_view name;
  int64_t dim, layers, heads, kv_heads, ffn, vocab;
};

// "1b": 2048 x 16, 32/8 heads, ffn 8192, vocabulary 32000, and larger ones. kInvalid names the
// known shapes.
Result<SyntheticShape> FindShape(std::string_view name);

// Writes a GGUF file whose matrices have the format. Rows repeat a set of random rows, which no
// kernel can notice.
Status WriteSynthetic(const SyntheticShape& shape, const quant::FormatTraits& format,
                      const std::string& path);

}  // namespace kvant::bench
