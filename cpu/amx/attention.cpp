// Attention in AMX.
#include "cpu/amx/attention.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/aligned_buffer.h"
#include "cpu/avx512vbmi/isa.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"

#include "cpu/amx/begin.inl"

namespace kvant::cpu::amx {
namespace {

// clang-format off
#include "cpu/amx/tile.inl"
#include "cpu/amx/attention.inl"
// clang-format on

}  // namespace

size_t AttentionScratchBytes(int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                             KeyForm key_form) {
  return ScratchBytes(rows, heads_per_kv, k_dim, v_dim, key_form);
}

void Attention(const AttentionTask& task) { Attend(task); }

}  // namespace kvant::cpu::amx

#include "cpu/avx512vnni/end.inl"

#endif  // defined(__x86_64__)
