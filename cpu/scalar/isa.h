// The reference kernels: plain C++ that runs on any processor. Never optimised; the kernels of all
// other folders are tested against them.
#pragma once

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::cpu::scalar {

const KernelTable* Kernels();

}  // namespace kvant::cpu::scalar
