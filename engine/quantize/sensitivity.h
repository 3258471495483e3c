// How much a model's output suffers from the error of each of its matrices: the weights of the sum
// that `kvant quantize --size` makes least.
//
// For small errors the divergence of the output grows in proportion to the relative error of a
// matrix, and those of several matrices add up (V. Malinovskii et al., "Pushing the Limits of Large
// Language Model Quantization via the Linearity Theorem", arXiv:2411.17525). The factor of each is
// measured: one matrix at a time is quantized with a known error, and the mean Kullback-Leibler
// divergence of the next token's distribution from the unchanged model's is divided by it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/quantize/error_table.h"
#include "kvant/token_id.h"

namespace kvant::quantize {

struct SensitivityOptions {
  std::string text;  // what the model reads
  // Windows of so many tokens, of which the second half of each is scored; so many tokens at most.
  int64_t window = 256;
  int64_t tokens_max = 2048;
  int threads = 1;
  std::function<Status(std::string_view tensor, size_t done, size_t count)> on_progress = {};
};

// Nats per unit of relative error for each matrix, whose rows must have been measured. Errors of
// opening and running the model; kInvalid for a text of less than a window.
Result<std::vector<double>> MeasureSensitivities(const std::string& model_path,
                                                 std::span<const MeasuredMatrix> matrices,
                                                 const SensitivityOptions& options);

// Without a text: 1 for the output matrix, whose error is that of the logits and which may be the
// embedding; less for others, by their role and the number of layers that share a residual stream.
enum class OutputMatrix : uint8_t { kOwn, kEmbedding };
double TypicalSensitivity(std::string_view tensor, int64_t layers, OutputMatrix output);

}  // namespace kvant::quantize
