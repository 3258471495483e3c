// Attention in AMX.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/attention.h"

namespace kvant::cpu::amx {

// As in KernelTable. Rows of passes with many tokens, and q8 keys and values, are multiplied in
// tiles, the rest as cpu/avx512vbmi does.
size_t AttentionScratchBytes(int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                             KeyForm key_form);
void Attention(const AttentionTask& task);

}  // namespace kvant::cpu::amx
