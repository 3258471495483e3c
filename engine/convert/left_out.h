// Tensors of Hugging Face folders that have no place in a GGUF file, by their names. Thread-safety:
// pure.
#pragma once

#include <string_view>

namespace kvant::convert {

// The beginning of the names of the inner model's tensors.
inline constexpr std::string_view kInnerModel = "model.";

// Buffers of older exports, which hold no weights or what is computed again.
bool IsIgnored(std::string_view name);

// Whether a tensor of a model that reads more than text belongs to a part that reads something
// else.
bool IsOfAnotherPart(std::string_view name);

}  // namespace kvant::convert
