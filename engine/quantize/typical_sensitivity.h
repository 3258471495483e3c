// How much a model's output typically suffers from the error of a matrix, by its role and depth:
// what engine/quantize/sensitivity.h measures, where nothing was measured.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvant::quantize {

// Divergence in nats per unit of relative error. The numbers compare matrices of one model: from
// model to model all of them differ by factors of ten, so their sum promises no divergence.
enum class OutputMatrix : uint8_t { kOwn, kEmbedding };  // `output.weight`, or the embedding
double TypicalSensitivity(std::string_view tensor, int64_t layers, OutputMatrix output);

}  // namespace kvant::quantize
