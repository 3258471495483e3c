// The block formats of this build: one line to include a format's header, one entry in the list.
// Nothing else names a format; tables by format follow the order of this list.
//
// A float format defines Decode(block, values), a quantized one ToIntegers(block, out) and
// kHasOffsets; both define kType, kName, kBlockValues, Block and Encode(values, importance, block).
// A format that quant/scale_search.h fits also has kShape and Pack(fit, block), with which
// cpu/generic/encode.inl encodes it in vectors, given a line in cpu/generic/codec_entries.inl.
//
// The integer form holds codebook formats too: a table's entries become the codes where they fit
// int8 (doubled for a table of halves such as E2M1), and a shift finer than a group of 16, as the
// +-1/8 of each 8 values in IQ1_M, goes into the codes as 8 * code +- 1 with an eighth of the
// scale.
#pragma once

#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/f32.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace kvant::quant {

template <class... Formats>
struct TypeList {};

// clang-format off
using FormatList = TypeList<
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K
>;
// clang-format on

}  // namespace kvant::quant
