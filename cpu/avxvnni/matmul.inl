// The matrix kernels of this folder, over the blocks, panels and formats of cpu/avx2. Included
// inside a namespace and target region, after vpdpbusd.h and kIsaName, the table's name.

// clang-format off
#include "cpu/avxvnni/byte_products.h"
#include "cpu/avx2/int8_blocks.h"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/generic/panel_operands.inl"
#include "cpu/avx2/panel_tile.h"
#include "cpu/avxvnni/int8_panel.h"
#include "cpu/generic/matmul_panel.inl"
#include "cpu/avx2/matmul_formats.h"
// clang-format on
