// Encoders and decoders with 4 blocks side by side.
#include "cpu/neon/codec.h"

#if defined(__aarch64__)

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/half.h"
#include "cpu/codec_table.h"
#include "cpu/intrinsics.h"
#include "quant/format_list.h"
#include "quant/formats/iq_grids.h"
#include "quant/formats/unit_values.h"
#include "quant/search/grid_cubes.h"
#include "quant/search/grid_minima.h"
#include "quant/search/scale_search.h"
#include "quant/search/trellis_cells.h"

#include "cpu/neon/begin.inl"

namespace kvant::cpu::neon {
namespace {

using namespace quant;
constexpr int kLanes = 4;
constexpr int kCodebookVectorBytes = 16;

// clang-format off
#include "quant/search/lane_operations.inl"
#include "cpu/neon/byte_operations.inl"
#include "quant/search/lane_batch.inl"
#include "quant/search/scale_search.inl"
#include "cpu/generic/encode.inl"
#include "cpu/generic/codebook_encode.inl"
#include "cpu/generic/float_rows.inl"
#include "cpu/generic/codec_entries.inl"
// clang-format on

}  // namespace

std::vector<EncodeFunction> EncodeFunctions() { return BuildEncodeTable(kEncoders); }
std::vector<DecodeFunction> DecodeFunctions() { return BuildDecodeTable(kDecoders); }

}  // namespace kvant::cpu::neon

#include "cpu/neon/end.inl"

#endif  // defined(__aarch64__)
