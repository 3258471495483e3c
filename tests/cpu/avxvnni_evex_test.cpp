// The kernels of AVX-VNNI on processors that have its instruction only in the encoding of AVX-512:
// compiled once more with that one, and run by all tests of instruction sets as "avxvnni_evex".
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu/avx2/isa.h"
#include "cpu/avx512vnni/isa.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"
#include "tests/cpu/isa_test.h"

#if defined(__x86_64__)

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::avxvnni_evex {
namespace {

constexpr const char* kIsaName = "avxvnni_evex";

#define KVANT_VPDPBUSD "vpdpbusd "
#include "cpu/avxvnni/matmul.inl"

}  // namespace
}  // namespace kvant::cpu::avxvnni_evex

#include "cpu/avx512vnni/end.inl"

namespace kvant::cpu::test {
namespace {

KernelTable BuildTable() {
  KernelTable table = *avx2::Kernels();
  table.isa = avxvnni_evex::kIsaName;
  table.matmul = avxvnni_evex::BuildKernels();
  return table;
}

}  // namespace

const KernelTable* AvxVnniEvexKernels() {
  if (!WhyRefused(DetectCpuFeatures(), avx512vnni::kRequired).empty()) return nullptr;
  static const KernelTable table = BuildTable();
  return &table;
}

}  // namespace kvant::cpu::test

#else

namespace kvant::cpu::test {
const KernelTable* AvxVnniEvexKernels() { return nullptr; }
}  // namespace kvant::cpu::test

#endif
