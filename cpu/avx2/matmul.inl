// The matrix kernels of AVX2: the shared drivers of cpu/generic with this folder's blocks,
// unpackers and vectors, each file after those that it needs. Included inside a namespace and
// target region, after kIsaName, the table's name.

// clang-format off
#include "cpu/avx2/byte_products.inl"
#include "cpu/avx2/int8_blocks.inl"
#include "cpu/avx2/point_blocks.inl"
#include "cpu/avx2/prepare_blocks.inl"
#include "cpu/generic/row_reader.inl"
#include "cpu/generic/int8_kernels.inl"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/generic/panel_operands.inl"
#include "cpu/avx2/panel_tile.inl"
#include "cpu/avx2/int8_panel.inl"
#include "cpu/generic/matmul_panel.inl"
#include "cpu/generic/strip_operands.inl"
#include "cpu/avx2/strip_layout.inl"
#include "cpu/avx2/strip_tile.inl"
#define KVANT_STRIP_TOKENS 4
#include "cpu/avx2/strip_track.inl"
#undef KVANT_STRIP_TOKENS
#define KVANT_STRIP_TOKENS 5
#include "cpu/avx2/strip_track.inl"
#undef KVANT_STRIP_TOKENS
#define KVANT_STRIP_TOKENS 6
#include "cpu/avx2/strip_track.inl"
#undef KVANT_STRIP_TOKENS
#include "cpu/avx2/strips.inl"
#include "cpu/generic/matmul_strips.inl"
#include "cpu/avx2/formats.inl"
// clang-format on
