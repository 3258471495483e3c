// The kernels of AVX-VNNI on processors with AVX2 that lack its one instruction: compiled once more
// over a model of it, and run by all tests of instruction sets as "avxvnni_model".
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu/avx2/isa.h"
#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels/table.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"
#include "tests/cpu/isa_test.h"

#if defined(__x86_64__)

// VPDPBUSD in AVX2: lane i of s += the products of bytes 4i to 4i + 3 of w, unsigned, with those of
// x, signed; those of even bytes first, then those of odd ones. Its registers are any, so it works
// on copies in memory below the stack and its red zone.
asm(R"(
.macro model_vpdpbusd x:req, w:req, s:req
  vmovdqu \x, -512(%rsp)
  vmovdqu \w, -480(%rsp)
  vmovdqu \s, -448(%rsp)
  vmovdqu %ymm0, -416(%rsp)
  vmovdqu %ymm1, -384(%rsp)
  vmovdqu %ymm2, -352(%rsp)
  vpcmpeqd %ymm0, %ymm0, %ymm0
  vpsrlw $8, %ymm0, %ymm0
  vpand -480(%rsp), %ymm0, %ymm0
  vmovdqu -512(%rsp), %ymm1
  vpsllw $8, %ymm1, %ymm1
  vpsraw $8, %ymm1, %ymm1
  vpmaddwd %ymm0, %ymm1, %ymm1
  vmovdqu -480(%rsp), %ymm0
  vpsrlw $8, %ymm0, %ymm0
  vmovdqu -512(%rsp), %ymm2
  vpsraw $8, %ymm2, %ymm2
  vpmaddwd %ymm0, %ymm2, %ymm2
  vpaddd %ymm2, %ymm1, %ymm1
  vpaddd -448(%rsp), %ymm1, %ymm1
  vmovdqu %ymm1, -320(%rsp)
  vmovdqu -416(%rsp), %ymm0
  vmovdqu -384(%rsp), %ymm1
  vmovdqu -352(%rsp), %ymm2
  vmovdqu -320(%rsp), \s
.endm
)");

#include "cpu/avx2/begin.inl"

namespace kvant::cpu::avxvnni_model {
namespace {

constexpr const char* kIsaName = "avxvnni_model";

#define KVANT_VPDPBUSD "model_vpdpbusd "
#include "cpu/avxvnni/matmul.inl"

}  // namespace
}  // namespace kvant::cpu::avxvnni_model

#include "cpu/avx2/end.inl"

namespace kvant::cpu::test {
namespace {

KernelTable BuildTable() {
  KernelTable table = *avx2::Kernels();
  table.isa = avxvnni_model::kIsaName;
  table.matmul = avxvnni_model::BuildKernels();
  return table;
}

}  // namespace

const KernelTable* AvxVnniModelKernels() {
  if (!WhyRefused(DetectCpuFeatures(), avx2::kRequired).empty()) return nullptr;
  static const KernelTable table = BuildTable();
  return &table;
}

}  // namespace kvant::cpu::test

#else

namespace kvant::cpu::test {
const KernelTable* AvxVnniModelKernels() { return nullptr; }
}  // namespace kvant::cpu::test

#endif
