// The reference attention; semantics in cpu/kernels/attention.h.
#pragma once

#include "cpu/kernels/attention.h"

namespace kvant::cpu::scalar {

size_t AttentionScratchBytes(int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                             KeyForm key_form);
void Attention(const AttentionTask& task);
void AttentionMerge(const AttentionTask& task);

}  // namespace kvant::cpu::scalar
