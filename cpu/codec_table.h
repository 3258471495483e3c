// Builds an instruction set's tables of block encoders and decoders: one function per format of
// quant/format_list.h, the instruction set's own where it has one, the scalar reference otherwise.
#pragma once

#include <span>
#include <vector>

#include "cpu/kernels/blocks.h"

namespace kvant::cpu {

template <class Function>
struct CodecEntry {
  quant::TensorType type;
  Function function;
};

// Both by quant::FormatIndex.
std::vector<EncodeFunction> BuildEncodeTable(std::span<const CodecEntry<EncodeFunction>> special);
std::vector<DecodeFunction> BuildDecodeTable(std::span<const CodecEntry<DecodeFunction>> special);

}  // namespace kvant::cpu
