// The formats that AVX-512 VNNI and AMX have unpackers for. Included inside the target region of
// matmul.inl, after the panels.

// clang-format off
#include "cpu/avx512vnni/unpack_pieces.inl"
#include "cpu/avx512vnni/pack_rows.inl"
#include "cpu/avx512vnni/pack_small_blocks.inl"
#include "cpu/avx2/packed_scales.inl"
#include "cpu/avx512vnni/piece_order.inl"
#include "cpu/avx512vnni/plane_pieces.inl"
#include "cpu/avx512vnni/look_up.inl"
#include "cpu/avx512vnni/unpack_generic.inl"
#include "cpu/avx512vnni/unpack_q4_0.inl"
#include "cpu/avx512vnni/unpack_iq4.inl"
#include "cpu/avx512vnni/unpack_q2_k.inl"
#include "cpu/avx512vnni/unpack_q4_k.inl"
#include "cpu/avx512vnni/unpack_q5_0.inl"
#include "cpu/avx512vnni/unpack_q6_k.inl"
#include "cpu/avx512vnni/unpack_q8_0.inl"
#include "cpu/avx512vnni/unpack_tq1_0.inl"
#include "cpu/avx512vnni/point_layouts.inl"
#include "cpu/avx512vnni/spread_points.inl"
#include "cpu/avx512vnni/unpack_grids.inl"
#include "cpu/avx512vnni/unpack_shifted.inl"
#include "cpu/avx512vnni/unpack_e2m1.inl"
#include "cpu/avx512vnni/unpack_few_bits.inl"
#include "cpu/avx512vnni/unpack_trellis.inl"
// clang-format on
