// The matrix kernels of NEON: the shared drivers of cpu/generic with
// the blocks, unpackers and vectors of cpu/neon, each file after those that
// it needs. Included inside a namespace and target region.

// clang-format off
#include "cpu/neon/int8_blocks.inl"
#include "cpu/neon/int8_products.inl"
#include "cpu/generic/row_reader.inl"
#include "cpu/generic/int8_kernels.inl"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/neon/formats.inl"
// clang-format on
