// Type ids of GGUF files that exist but that this build cannot read: for messages that name them,
// and for whoever copies such tensors without reading them.
//
// Ids, names and sizes are those of enum ggml_type in ggml's public header ggml.h, and of forks of
// it. An id that a
// format of quant/format_list.h defines is looked up there first, so a new format need not touch
// this table.
#pragma once

#include <cstdint>

namespace kvant::quant {

struct UnsupportedType {
  uint32_t id;
  const char* name;
  // Values of a block and their bytes; 0 where the size of a tensor must be found otherwise.
  int block_values = 0;
  int block_bytes = 0;
};

inline constexpr UnsupportedType kUnsupportedTypes[] = {
    {4, "Q4_2 (removed from GGUF)"},
    {5, "Q4_3 (removed from GGUF)"},
    {9, "Q8_1 (internal to ggml)"},
    {15, "Q8_K (internal to ggml)"},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {31, "Q4_0_4_4 (removed from GGUF)", 32, 18},
    {32, "Q4_0_4_8 (removed from GGUF)", 32, 18},
    {33, "Q4_0_8_8 (removed from GGUF)", 32, 18},
    {36, "IQ4_NL_4_4 (removed from GGUF)", 32, 18},
    {37, "IQ4_NL_4_8 (removed from GGUF)", 32, 18},
    {38, "IQ4_NL_8_8 (removed from GGUF)", 32, 18},
    {142, "PQ2_0 (of Prism; its codes go with a rotation of activations)", 128, 34},
    {143, "PTQ1_0 (of Prism; its codes go with a rotation of activations)", 128, 28},
    {229, "IQ1_M_R4 (of ik_llama.cpp; no other type has its values)"},
};

// The row of a type id, or null.
constexpr const UnsupportedType* FindUnsupportedType(uint32_t id) {
  for (const UnsupportedType& type : kUnsupportedTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

}  // namespace kvant::quant
