// Rows that the classes of RWKV share: their tensors and the sizes of their heads.
#pragma once

#include <array>
#include <string_view>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// Other engines write this context; the models have no limit.
inline constexpr int64_t kRwkvContext = 1 << 20;

constexpr HfTensor HfVector(std::string_view hf_name, std::string_view gguf_name) {
  return {.hf_name = hf_name, .gguf_name = gguf_name, .rows = Extent::kDim};
}

constexpr HfTensor HfSquare(std::string_view hf_name, std::string_view gguf_name) {
  return HfMatrix(hf_name, gguf_name, Extent::kDim, Extent::kDim);
}

constexpr HfTensor HfTransposed(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                                Extent columns) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = rows,
          .columns = columns,
          .order = RowOrder::kTransposed};
}

// The factors of all mixes, which have a vector each in the folder.
constexpr HfTensor HfLetters(std::string_view hf_name, std::string_view gguf_name,
                             std::string_view letters) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = Extent::kMixes,
          .columns = Extent::kDim,
          .experts = ExpertForm::kEachLetter,
          .letters = letters};
}

constexpr std::array<HfTensor, 2> HfLayerNorm(std::string_view weight, std::string_view bias,
                                              std::string_view gguf_weight,
                                              std::string_view gguf_bias) {
  return {HfVector(weight, gguf_weight), HfBias(bias, gguf_bias, Extent::kDim)};
}

// Reads the size of a head by its key, and sets the context.
Status ReadRwkvHeads(const JsonObject& config, std::string_view key, HfShape& shape);

}  // namespace kvant::arch
