// Weights of a folder that are small floats with scales: which kinds of such folders can be read,
// by quantization_config in config.json or by modelopt's hf_quant_config.json.
//
// Lists of modules that keep their weights are not needed: the type of a tensor says what it holds.
//
// Sources: the transformers library's configurations of quantization and compressed-tensors 0.20.
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "formats/json_object.h"

namespace kvant::convert {

// The part of a matrix that has one scale. Parts at the edges of a matrix may be smaller.
struct ScaleBlock {
  int64_t rows = 0;
  int64_t columns = 0;
};

struct Quantization {
  bool declared = false;                // the folder says that weights have scales
  std::vector<ScaleBlock> blocks = {};  // beside whole matrices and whole rows
};

// kNotSupported names a method, or a format of it, that cannot be read, with the known ones.
// `config`: of the file config.json in `folder`.
Result<Quantization> ReadQuantization(const std::string& folder, const formats::JsonObject& config,
                                      const arch::HfFamily& family);

// Whether a tensor of a folder whose weights have scales is such a scale, by its name.
bool IsWeightScale(std::string_view name);

// Whether a tensor of such a folder is a scale of activations or of the cache. kvant finds scales
// of activations for each row anew, so these are left out.
bool IsActivationScale(std::string_view name);

}  // namespace kvant::convert
