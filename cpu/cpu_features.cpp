// Detection by CPUID and XGETBV, bit numbers from Intel's Software Developer's Manual, volume 2A,
// "CPUID", and volume 1, section 13.3 (XCR0); and on Arm by what the kernel hands to a program, bit
// numbers from Linux's arch/arm64/include/uapi/asm/hwcap.h.
#include "cpu/cpu_features.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace kvant::cpu {
namespace {

enum class Register : uint8_t { kEax, kEbx, kEcx, kEdx, kHwcap, kHwcap2 };
enum class Saved : uint8_t { kNothing, kAvx, kAvx512, kAmx };

struct FeatureRow {
  const char* name;
  unsigned leaf;  // CPUID leaf; 0 for Arm's features
  Register output;
  int bit;
  Saved saved;  // registers the operating system must save for it
  unsigned subleaf = 0;
};

// By CpuFeature: every feature that kvant knows has its row here, and only here.
constexpr FeatureRow kFeatureRows[] = {
    {"fma", 1, Register::kEcx, 12, Saved::kAvx},
    {"f16c", 1, Register::kEcx, 29, Saved::kAvx},
    {"bmi1", 7, Register::kEbx, 3, Saved::kNothing},
    {"bmi2", 7, Register::kEbx, 8, Saved::kNothing},
    {"lzcnt", 0x80000001, Register::kEcx, 5, Saved::kNothing},
    {"popcnt", 1, Register::kEcx, 23, Saved::kNothing},
    {"avx2", 7, Register::kEbx, 5, Saved::kAvx},
    {"avx512f", 7, Register::kEbx, 16, Saved::kAvx512},
    {"avx512bw", 7, Register::kEbx, 30, Saved::kAvx512},
    {"avx512dq", 7, Register::kEbx, 17, Saved::kAvx512},
    {"avx512vl", 7, Register::kEbx, 31, Saved::kAvx512},
    {"avx512_vnni", 7, Register::kEcx, 11, Saved::kAvx512},
    {"avx512vbmi", 7, Register::kEcx, 1, Saved::kAvx512},
    {"avx512_bf16", 7, Register::kEax, 5, Saved::kAvx512, 1},
    {"avx_vnni", 7, Register::kEax, 4, Saved::kAvx, 1},
    {"amx_tile", 7, Register::kEdx, 24, Saved::kAmx},
    {"amx_bf16", 7, Register::kEdx, 22, Saved::kAmx},
    {"amx_int8", 7, Register::kEdx, 25, Saved::kAmx},
    {"asimddp", 0, Register::kHwcap, 20, Saved::kNothing},
    {"asimdrdm", 0, Register::kHwcap, 12, Saved::kNothing},
    {"atomics", 0, Register::kHwcap, 8, Saved::kNothing},
    {"crc32", 0, Register::kHwcap, 7, Saved::kNothing},
    {"i8mm", 0, Register::kHwcap2, 13, Saved::kNothing},
};

static_assert(std::size(kFeatureRows) == static_cast<size_t>(CpuFeature::kI8mm) + 1);

const FeatureRow& Row(CpuFeature feature) { return kFeatureRows[static_cast<size_t>(feature)]; }

#if defined(__x86_64__)
bool CpuidBit(unsigned leaf, Register output, int bit, unsigned subleaf = 0) {
  unsigned registers[4] = {};  // by Register
  if (__get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2],
                        &registers[3]) == 0) {
    return false;
  }
  return registers[static_cast<size_t>(output)] >> bit & 1u;
}

// The register sets that the operating system saves; 0 where it does not use XSAVE at all.
uint64_t ReadXcr0() {
  constexpr int kOsxsaveBit = 27;
  if (!CpuidBit(1, Register::kEcx, kOsxsaveBit)) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}
#endif

}  // namespace

std::span<const CpuFeature> AllCpuFeatures() {
  static const auto kAll = [] {
    std::array<CpuFeature, std::size(kFeatureRows)> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<CpuFeature>(i);
    return all;
  }();
  return kAll;
}

const char* CpuFeatureName(CpuFeature feature) { return Row(feature).name; }

CpuFeatures DetectCpuFeatures() {
  CpuFeatures features;
#if defined(__x86_64__)
  for (size_t i = 0; i < std::size(kFeatureRows); ++i) {
    const FeatureRow& row = kFeatureRows[i];
    if (row.leaf != 0 && CpuidBit(row.leaf, row.output, row.bit, row.subleaf)) {
      features.present |= 1u << i;
    }
  }
  constexpr uint64_t kAvxState = 0x06;     // XMM and upper YMM
  constexpr uint64_t kAvx512State = 0xe6;  // these, opmask and both parts of ZMM
  constexpr uint64_t kAmxState = 0x60000;  // configuration and data of tiles
  const uint64_t saved = ReadXcr0();
  features.saves_avx = (saved & kAvxState) == kAvxState;
  features.saves_avx512 = (saved & kAvx512State) == kAvx512State;
  features.saves_amx = (saved & kAmxState) == kAmxState;
#elif defined(__aarch64__)
  for (size_t i = 0; i < std::size(kFeatureRows); ++i) {
    const FeatureRow& row = kFeatureRows[i];
    if (row.leaf != 0) continue;
    const unsigned long words = getauxval(row.output == Register::kHwcap ? AT_HWCAP : AT_HWCAP2);
    if ((words >> row.bit & 1) != 0) features.present |= 1u << i;
  }
#endif
  return features;
}

std::string WhyRefused(const CpuFeatures& features, std::span<const CpuFeature> required) {
  for (const CpuFeature feature : required) {
    if (!features.Has(feature)) return fmt::format("CPU lacks {}", CpuFeatureName(feature));
  }
  for (const CpuFeature feature : required) {
    const Saved saved = Row(feature).saved;
    if (saved == Saved::kAvx && !features.saves_avx) {
      return "the operating system does not save AVX registers";
    }
    if (saved == Saved::kAvx512 && !features.saves_avx512) {
      return "the operating system does not save AVX-512 registers";
    }
    if (saved == Saved::kAmx && !features.saves_amx) {
      return "the operating system does not save AMX registers";
    }
  }
  return "";
}

bool IsAmd() {
#if defined(__x86_64__)
  static const bool amd = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0 && ebx == signature_AMD_ebx &&
           edx == signature_AMD_edx && ecx == signature_AMD_ecx;
  }();
  return amd;
#else
  return false;
#endif
}

// CPUID 8000001Ah says it, but virtual machines often hide that; family and model from AMD's
// revision guides. Of family 1Ah models 20h to 2Fh and 60h to 6Fh, for laptops, compute 256.
bool HasWideAmdUnits() {
#if defined(__x86_64__)
  static const bool wide = [] {
    if (!IsAmd()) return false;
    if (CpuidBit(0x8000001a, Register::kEax, 3)) return true;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
    const unsigned family = (eax >> 8 & 15) + (eax >> 20 & 255);
    const unsigned models = eax >> 16 & 15;  // the upper half of the model's number
    return family == 0x1a && models != 2 && models != 6;
  }();
  return wide;
#else
  return false;
#endif
}

int64_t FirstLevelDataBytes() {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  static const int64_t bytes = std::max<int64_t>(sysconf(_SC_LEVEL1_DCACHE_SIZE), 0);
  return bytes;
#else
  return 0;
#endif
}

}  // namespace kvant::cpu
