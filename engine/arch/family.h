// A model family: it turns a file's metadata into a ModelSpec, and folders of Hugging Face into
// such files.
//
// To add a family, write engine/arch/families/<name>.cpp with a constant of this type, and one line
// in engine/arch/family_list.inl. Nothing else needs to know of it: kvant run, convert, the help
// texts and the tests go through AllFamilies.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

// Says which models of a family have an attn_v that is small for its worth, so that mixed formats
// give it more bits: none, models with query heads that share a kv head, or all. Only models of as
// many layers as Llama 2 70B are asked (engine/quantize/recipe.cpp).
enum class SmallValues : uint8_t { kNever, kIfGrouped, kAlways };

// How llama.cpp's mixed formats treat a family, beyond what follows from sizes.
struct MixTraits {
  SmallValues small_values = SmallValues::kNever;
  bool own_mix = false;  // the rows with kOwnMix in engine/quantize/recipe.cpp
};

struct Family {
  std::string_view name;    // general.architecture
  std::string_view models;  // what people call the models: "Llama 1 to 3, Mistral, TinyLlama"
  // Reads and checks the family's metadata.
  Result<ModelSpec> (*read)(const Metadata& metadata);
  std::span<const HfFamily> hf;  // the Hugging Face classes that are converted to this family
  MixTraits mix = {};
};

#define KVANT_FAMILY(name)     \
  namespace name {             \
  extern const Family kFamily; \
  }
#include "engine/arch/family_list.inl"
#undef KVANT_FAMILY

// All families, in the order of engine/arch/family_list.inl.
std::span<const Family* const> AllFamilies();

}  // namespace kvant::arch
