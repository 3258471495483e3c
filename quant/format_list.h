// The block formats of this build: one line to include a format's header, one entry in the list.
// Nothing else names a format; tables by format follow the order of this list.
//
// A float format defines Decode(block, values), a quantized one ToIntegers(block, out) and
// kHasOffsets; both define kType, kName, kBlockValues, Block and Encode(values, importance, block).
// Where rows begin with a factor of all scales, the format defines Head, Factor(head) and, instead
// of Encode, EncodeRow(values, importance, row, n_values).
// kNeedsImportance marks formats of so few bits that weights are not quantized to them without
// importances.
// A format that quant/search/scale_search.h fits also has kShape and Pack(fit, block), with which
// cpu/generic/encode.inl encodes it in vectors, given a line in cpu/generic/codec_entries.inl.
//
// The integer form holds codebook formats too: a table's entries are the codes (doubled for the
// halves of E2M1), and a shift finer than a group of 16, as the +-1/8 of each 8 values in IQ1_M,
// goes into the codes as 8 * code +- 1 with an eighth of the scale.
#pragma once

#include "quant/formats/bf16.h"
#include "quant/formats/f16.h"
#include "quant/formats/f32.h"
#include "quant/formats/iq1_bn.h"
#include "quant/formats/iq1_kt.h"
#include "quant/formats/iq1_m.h"
#include "quant/formats/iq1_s.h"
#include "quant/formats/iq2_bn.h"
#include "quant/formats/iq2_k.h"
#include "quant/formats/iq2_kl.h"
#include "quant/formats/iq2_ks.h"
#include "quant/formats/iq2_kt.h"
#include "quant/formats/iq2_s.h"
#include "quant/formats/iq2_xs.h"
#include "quant/formats/iq2_xxs.h"
#include "quant/formats/iq3_k.h"
#include "quant/formats/iq3_ks.h"
#include "quant/formats/iq3_kt.h"
#include "quant/formats/iq3_s.h"
#include "quant/formats/iq3_xxs.h"
#include "quant/formats/iq4_k.h"
#include "quant/formats/iq4_ks.h"
#include "quant/formats/iq4_kss.h"
#include "quant/formats/iq4_kt.h"
#include "quant/formats/iq4_nl.h"
#include "quant/formats/iq4_xs.h"
#include "quant/formats/iq5_k.h"
#include "quant/formats/iq5_ks.h"
#include "quant/formats/iq6_k.h"
#include "quant/formats/mxfp4.h"
#include "quant/formats/nvfp4.h"
#include "quant/formats/q1_0.h"
#include "quant/formats/q2_0.h"
#include "quant/formats/q2_k.h"
#include "quant/formats/q3_k.h"
#include "quant/formats/q4_0.h"
#include "quant/formats/q4_1.h"
#include "quant/formats/q4_k.h"
#include "quant/formats/q5_0.h"
#include "quant/formats/q5_1.h"
#include "quant/formats/q5_k.h"
#include "quant/formats/q6_0.h"
#include "quant/formats/q6_k.h"
#include "quant/formats/q8_0.h"
#include "quant/formats/q8_kv.h"
#include "quant/formats/tq1_0.h"
#include "quant/formats/tq2_0.h"

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
    Q6_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
    Q2_0,
    Q6_0,
    IQ2_K,
    IQ3_K,
    IQ4_K,
    IQ5_K,
    IQ6_K,
    IQ2_KS,
    IQ2_KL,
    IQ3_KS,
    IQ4_KSS,
    IQ4_KS,
    IQ5_KS,
    Q8_KV,
    IQ1_BN,
    IQ2_BN,
    IQ1_KT,
    IQ2_KT,
    IQ3_KT,
    IQ4_KT
>;
// clang-format on

}  // namespace kvant::quant
