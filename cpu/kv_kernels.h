// The kernels that store keys and values of a type and attend to them: those of an instruction set
// for the formats that it has, and plain code for all others.
#pragma once

#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"

namespace kvant::cpu {

// Whether store_key, store_value and attention of every instruction set take the type.
constexpr bool KvHasVectorKernels(KvType type) { return KvTraitsOf(type).has_vector_kernels; }

// `kernels`, if they have kernels for both types, and else the scalar table. Thread-safe.
const KernelTable& KernelsFor(const KernelTable& kernels, KvType k_type, KvType v_type);

}  // namespace kvant::cpu
