// The table of NEON matrix kernels: the shared drivers of cpu/generic with this folder's blocks,
// unpackers and vectors. A format without a line in the table below goes through unpack_generic.h.
#include "cpu/neon/matmul.h"

#if defined(__aarch64__)

#include <algorithm>
#include <cstring>

#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/neon/begin.h"

namespace kvant::cpu::neon {
namespace {

// clang-format off
#include "cpu/neon/int8_blocks.h"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/neon/unpack_pieces.h"
#include "cpu/neon/unpack_generic.h"
#include "cpu/neon/unpack_q4_0.h"
#include "cpu/neon/unpack_iq4.h"
#include "cpu/neon/unpack_q4_k.h"
#include "cpu/neon/unpack_q6_k.h"
#include "cpu/neon/unpack_q8_0.h"
#include "cpu/neon/float_elements.h"
#include "cpu/generic/matmul_float.inl"
// clang-format on

constexpr MatMulEntry kSpecial[] = {
    {quant::F32::kType, RunFloat<ElementF32>},     {quant::F16::kType, RunFloat<ElementF16>},
    {quant::Bf16::kType, RunFloat<ElementBf16>},   {quant::Q4_0::kType, RunInt8<UnpackQ4_0>},
    {quant::Q4_1::kType, RunInt8<UnpackQ4_1>},     {quant::Q8_0::kType, RunInt8<UnpackQ8_0>},
    {quant::Q4_K::kType, RunInt8<UnpackQ4_K>},     {quant::Q5_K::kType, RunInt8<UnpackQ5_K>},
    {quant::Q6_K::kType, RunInt8<UnpackQ6_K>},     {quant::IQ4_NL::kType, RunInt8<UnpackIQ4_NL>},
    {quant::IQ4_XS::kType, RunInt8<UnpackIQ4_XS>},
};

}  // namespace

std::vector<MatMulKernel> MatMulKernels() {
  return BuildMatMulTable({"neon", kSpecial, RunInt8<UnpackGeneric<false>>,
                           RunInt8<UnpackGeneric<true>>, Scratch::Bytes, FloatScratchBytes});
}

}  // namespace kvant::cpu::neon

#include "cpu/neon/end.h"

#endif  // defined(__aarch64__)
