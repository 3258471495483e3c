// Type ids of GGUF files that exist but that this build cannot read, for messages that name them.
//
// Ids and names are those of enum ggml_type in ggml's public header ggml.h (Q1_0 and Q2_0: as of
// 2026). An id that a format of quant/format_list.h defines is looked up there first, so a new
// format need not touch this table.
#pragma once

#include <cstdint>

namespace kvant::quant {

struct UnsupportedType {
  uint32_t id;
  const char* name;
};

inline constexpr UnsupportedType kUnsupportedTypes[] = {
    {4, "Q4_2 (removed from GGUF)"},
    {5, "Q4_3 (removed from GGUF)"},
    {9, "Q8_1 (internal to ggml)"},
    {15, "Q8_K (internal to ggml)"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {31, "Q4_0_4_4 (removed from GGUF)"},
    {32, "Q4_0_4_8 (removed from GGUF)"},
    {33, "Q4_0_8_8 (removed from GGUF)"},
    {36, "IQ4_NL_4_4 (removed from GGUF)"},
    {37, "IQ4_NL_4_8 (removed from GGUF)"},
    {38, "IQ4_NL_8_8 (removed from GGUF)"},
    {41, "Q1_0"},
    {42, "Q2_0"},
};

}  // namespace kvant::quant
