// The matrix kernels of NEON with products of byte matrices: the shared drivers of cpu/generic with
// the blocks, unpackers and vectors of cpu/neon and the products of this folder, each file after
// those that it needs. Included inside a namespace and target region.

// clang-format off
#include "cpu/neon/int8_blocks.inl"
#include "cpu/i8mm/int8_products.inl"
#include "cpu/generic/row_reader.inl"
#include "cpu/generic/int8_kernels.inl"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/neon/formats.inl"
// clang-format on
