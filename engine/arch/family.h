// What a model family is: how a file's metadata become a ModelSpec, and how folders of Hugging Face
// become such files.
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

struct Family {
  std::string_view name;    // general.architecture
  std::string_view models;  // what people call the models: "Llama 1 to 3, Mistral, TinyLlama"
  // Reads and checks the family's metadata.
  Result<ModelSpec> (*read)(const Metadata& metadata);
  std::span<const HfFamily> hf;  // the Hugging Face classes that are converted to this family
};

// All families, in the order of engine/arch/family_list.inl.
std::span<const Family* const> AllFamilies();

}  // namespace kvant::arch
