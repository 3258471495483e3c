// The features that this processor and its operating system offer to the kernels.
//
// A vector feature counts only where the operating system saves its registers; the two reasons for
// its absence are told apart because the remedies differ.
//
// Thread-safety: pure values; detection may run on any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace kvant::cpu {

enum class CpuFeature : uint8_t {
  kFma,
  kF16c,
  kBmi1,
  kBmi2,
  kLzcnt,
  kPopcnt,
  kAvx2,
  kAvx512f,
  kAvx512bw,
  kAvx512dq,
  kAvx512vl,
  kAvx512vnni,
  kAvx512vbmi,
  kAvx512bf16,
  kAvxVnni,
  kAmxTile,
  kAmxBf16,
  kAmxInt8,
  kAsimdDp,
  kAsimdRdm,
  kAtomics,
  kCrc32,
  kI8mm,
};

// Every feature that kvant asks for, on x86 and on Arm.
std::span<const CpuFeature> AllCpuFeatures();

// As /proc/cpuinfo spells it: "avx512_vnni", "asimddp".
const char* CpuFeatureName(CpuFeature feature);

struct CpuFeatures {
  uint32_t present = 0;  // bit per CpuFeature
  bool saves_avx = false;
  bool saves_avx512 = false;
  bool saves_amx = false;

  bool Has(CpuFeature feature) const { return (present >> static_cast<unsigned>(feature)) & 1u; }
};

CpuFeatures DetectCpuFeatures();

// Why code that needs `required` must not run with these features, or "" where it may:
// "CPU lacks avx512_vnni", "the operating system does not save AVX-512 registers".
std::string WhyRefused(const CpuFeatures& features, std::span<const CpuFeature> required);

// Whether this is an x86-64 CPU of AMD's.
bool IsAmd();

// Whether this is an AMD CPU that computes 512 bits at once, as most of Zen 5 do, but not Zen 4.
bool HasWideAmdUnits();

// Bytes of a core's first-level data cache, as the operating system says; 0 where it does not.
int64_t FirstLevelDataBytes();

}  // namespace kvant::cpu
