// Quantization recipes: which format each tensor of a model gets for a name such as Q4_K_M.
//
// A recipe has a base format and rules for the tensors that deserve more or bear fewer bits. Names,
// rules, file type numbers and fallbacks are those of llama-quantize of February 2025 (MXFP4_MOE
// and NVFP4 are later), so that a name means the same mix in both programs.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant::quantize {

// The tensors with roles of their own, as all families name them.
inline constexpr std::string_view kOutputName = "output.weight";
inline constexpr std::string_view kEmbeddingName = "token_embd.weight";

struct Recipe {
  const char* name;
  uint32_t file_type;  // general.file_type, as llama.cpp numbers them
  const char* base;    // name of the base format
  const char* summary;
};

// All recipes in the order of their size, smallest first.
std::span<const Recipe> AllRecipes();

// Finds a recipe by its case-insensitive name; "Q3_K", "Q4_K" and "Q5_K" are short for their _M
// mixes. Null for others.
const Recipe* FindRecipe(std::string_view name);

// The facts about a model that the rules ask for. Zero where its metadata say nothing.
struct RecipeModel {
  std::string arch;
  int64_t layers = 0;
  int64_t experts = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t vocabulary = 0;  // tokens
  bool has_importance = false;
  int64_t embedding_columns = 0;
  bool makes_vectors = false;  // of texts: it has a pooling, and no matrix that makes logits
};
RecipeModel DescribeModel(const formats::GgufFile& file);

// Whether tensors of this name and shape are quantized at all: matrices called *.weight that are no
// norms, routers, position embeddings or other small tensors that suffer.
bool IsQuantizable(const formats::GgufTensor& tensor);

// The format that a row of `columns` values gets where `wanted` cannot hold it: the next larger one
// with smaller blocks, or F16. `wanted` itself where it fits.
const quant::FormatTraits& FittingFormat(const quant::FormatTraits& wanted, int64_t columns);

// The format that a matrix gets for the one that a recipe wants for it, whatever its rows are like.
// The mixes of Q4_K and Q5_K spare an embedding that is only looked up, not the matrices that rows
// of a model for vectors pass through: where the rows of its embedding are too odd, the embedding
// becomes what the base format would, and other matrices with odd rows Q8_0. That takes fewer
// bytes than llama-quantize's choice, which is the other way round, and leaves a third of the error
// (bench/results/embeddings.md).
const quant::FormatTraits& FittingFormat(const Recipe& recipe, const RecipeModel& model,
                                         const formats::GgufTensor& tensor,
                                         const quant::FormatTraits& wanted);

// One format per tensor, null for a tensor that stays as it is. `tensors` are all of the model's.
// Rows may be too odd for it: FittingFormat is still to be applied.
std::vector<const quant::FormatTraits*> ApplyRecipe(const Recipe& recipe, const RecipeModel& model,
                                                    std::span<const formats::GgufTensor> tensors);

}  // namespace kvant::quantize
