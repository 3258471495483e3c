// Type ids of GGUF files that exist but that this build cannot read: for messages that name them,
// and for whoever copies such tensors without reading them.
//
// Ids, names and sizes are those of enum ggml_type in ggml's public header ggml.h. An id that a
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
    {202, "Q4_0_R8 (interleaved rows, of ik_llama.cpp)", 32, 18},
    {206, "Q5_0_R4 (interleaved rows, of ik_llama.cpp)", 32, 22},
    {208, "Q8_0_R8 (interleaved rows, of ik_llama.cpp)", 32, 34},
    {210, "Q2_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 84},
    {211, "Q3_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 110},
    {212, "Q4_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 144},
    {213, "Q5_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 176},
    {214, "Q6_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 210},
    {216, "IQ2_XXS_R4 (interleaved rows, of ik_llama.cpp)", 256, 66},
    {217, "IQ2_XS_R4 (interleaved rows, of ik_llama.cpp)", 256, 74},
    {218, "IQ3_XXS_R4 (interleaved rows, of ik_llama.cpp)", 256, 98},
    {219, "IQ1_S_R4 (interleaved rows, of ik_llama.cpp)"},
    {220, "IQ4_NL_R4 (interleaved rows, of ik_llama.cpp)", 32, 18},
    {221, "IQ3_S_R4 (interleaved rows, of ik_llama.cpp)", 256, 110},
    {222, "IQ2_S_R4 (interleaved rows, of ik_llama.cpp)", 256, 82},
    {223, "IQ4_XS_R8 (interleaved rows, of ik_llama.cpp)", 256, 136},
    {229, "IQ1_M_R4 (interleaved rows, of ik_llama.cpp)"},
    {230, "BF16_R16 (interleaved rows, of ik_llama.cpp)", 1, 2},
    {233, "Q6_0_R4 (interleaved rows, of ik_llama.cpp)", 32, 26},
    {335, "IQ2_BN_R4 (interleaved rows, of ik_llama.cpp)"},
    {337, "IQ2_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 76},
    {338, "IQ3_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 110},
    {339, "IQ4_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 144},
    {340, "IQ5_K_R4 (interleaved rows, of ik_llama.cpp)", 256, 176},
    {344, "IQ4_KS_R4 (interleaved rows, of ik_llama.cpp)"},
    {352, "IQ5_KS_R4 (interleaved rows, of ik_llama.cpp)"},
    {353, "MXFP4_R8 (interleaved rows, of ik_llama.cpp)", 32, 17},
    {397, "Q8_K_R16 (interleaved rows, of ik_llama.cpp)"},
    {398, "Q8_KV_R8 (interleaved rows, of ik_llama.cpp)"},
    {399, "Q8_K_R8 (interleaved rows, of ik_llama.cpp)"},
};

// The row of a type id, or null.
constexpr const UnsupportedType* FindUnsupportedType(uint32_t id) {
  for (const UnsupportedType& type : kUnsupportedTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

}  // namespace kvant::quant
