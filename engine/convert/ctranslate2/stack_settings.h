// The settings of one of the two stacks of a Transformer in CTranslate2's model.bin: scalars, and
// sizes that follow from the shapes of weights.
//
// Errors name the file and the variable. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/ctranslate2.h"

namespace kvant::convert {

struct StackSettings {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t q_rows = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;    // rows of the embedding; 0: the stack has none
  int64_t context = 0;  // rows of the table of positions; 0: there is none
  int64_t activation = 0;
  float embedding_scale = 1;
  bool norms_before = true;
  bool embedding_norm = false;
  bool gated = false;
  bool distances = false;      // in place of positions
  bool own_distances = false;  // in each layer
  int64_t buckets = 0;
  int64_t distance_max = 0;
};

// `name`: "encoder" or "decoder". kNotSupported for a scalar that would change what the classes of
// kvant compute.
Result<StackSettings> ReadStackSettings(const formats::CTranslate2Model& model,
                                        std::string_view name);

// The variable of a stack's embedding, or null.
const formats::SafetensorsTensor* FindStackEmbedding(const formats::CTranslate2Model& model,
                                                     std::string_view stack);

// Whether two variables are one, or hold the same values with the same scales.
bool AreSameVariable(const formats::CTranslate2Model& model,
                     const formats::SafetensorsTensor& first,
                     const formats::SafetensorsTensor& second);

// A scalar, or `otherwise` where there is none.
Result<double> NumberOr(const formats::CTranslate2Model& model, std::string_view name,
                        double otherwise);

// "model.bin: variable "x" is 3, expected 1".
Error UnexpectedNumber(const formats::CTranslate2Model& model, std::string_view name, double found,
                       std::string_view expected);

}  // namespace kvant::convert
