// Which instruction set is chosen, and why the others are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <sstream>

#include "base/result.h"
#include "cpu/cpu_features.h"
#include "cpu/dispatch.h"
#include "cpu/isa_list.h"
#include "cpu/kernels/table.h"

namespace kvant::cpu {
namespace {

using testing::HasSubstr;

// Sets KVANT_ISA for one test and puts the former value back.
class ForcedIsa {
 public:
  explicit ForcedIsa(const char* name) {
    if (const char* old = std::getenv("KVANT_ISA")) old_ = old;
    setenv("KVANT_ISA", name, 1);
  }
  ~ForcedIsa() {
    if (old_) {
      setenv("KVANT_ISA", old_->c_str(), 1);
    } else {
      unsetenv("KVANT_ISA");
    }
  }

 private:
  std::optional<std::string> old_;
};

TEST(Dispatch, ReportsAllInstructionSetsBestFirst) {
  const std::vector<IsaReport> reports = ReportIsas();
  std::vector<std::string> names;
  for (const IsaReport& report : reports) {
    names.emplace_back(report.name);
    EXPECT_EQ(report.supported, report.reason.empty()) << report.name;
  }
  EXPECT_THAT(names, testing::ElementsAre("amx", "avx512vbmi", "avx512vnni", "avxvnni", "avx2",
                                          "i8mm", "neon", "scalar"));
  EXPECT_TRUE(reports.back().supported);
}

TEST(Dispatch, ChoosesTheBestSupported) {
  const Result<const KernelTable*> chosen = ChooseKernels("");
  ASSERT_TRUE(chosen.ok());
  for (const IsaReport& report : ReportIsas()) {
    if (!report.supported) continue;
    EXPECT_STREQ((*chosen)->isa, report.name);
    break;
  }
}

TEST(Dispatch, GivesTheNamedTableOrTheReason) {
  for (const IsaReport& report : ReportIsas()) {
    const Result<const KernelTable*> chosen = ChooseKernels(report.name);
    ASSERT_EQ(chosen.ok(), report.supported) << report.name;
    if (chosen.ok()) {
      EXPECT_STREQ((*chosen)->isa, report.name);
    } else {
      EXPECT_EQ(chosen.error().code, ErrorCode::kNotSupported);
      EXPECT_THAT(chosen.error().message, HasSubstr(report.reason));
    }
  }
}

// Linux may refuse tiles to a process in this way.
TEST(Dispatch, AnInstructionSetWithoutATableIsNotSupported) {
  const auto no_table = []() -> const KernelTable* { return nullptr; };
  const auto [report, kernels] = Ask({"refused", true, {}, no_table}, DetectCpuFeatures());
  EXPECT_TRUE(report.compiled);
  EXPECT_FALSE(report.supported);
  EXPECT_EQ(report.reason, "the operating system refuses its registers");
  EXPECT_EQ(kernels, nullptr);
}

TEST(Dispatch, RefusesAnUnknownName) {
  const Result<const KernelTable*> chosen = ChooseKernels("avx9");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(chosen.error().message,
            "unknown instruction set 'avx9', expected one of amx, avx512vbmi, avx512vnni, avxvnni, "
            "avx2, i8mm, neon, scalar");
}

TEST(Dispatch, TheEnvironmentForces) {
  const ForcedIsa forced("scalar");
  const Result<const KernelTable*> chosen = ChooseKernelsFromEnvironment();
  ASSERT_TRUE(chosen.ok());
  EXPECT_STREQ((*chosen)->isa, "scalar");
}

TEST(Dispatch, AnImpossibleForceIsAnErrorThatNamesTheVariable) {
  const ForcedIsa forced("AVX2");
  const Result<const KernelTable*> chosen = ChooseKernelsFromEnvironment();
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(chosen.error().message, HasSubstr("KVANT_ISA"));
  EXPECT_THAT(chosen.error().message, HasSubstr("'AVX2'"));
}

TEST(Dispatch, AnEmptyVariableMeansTheBest) {
  const ForcedIsa forced("");
  const Result<const KernelTable*> chosen = ChooseKernelsFromEnvironment();
  ASSERT_TRUE(chosen.ok());
  EXPECT_STREQ((*chosen)->isa, (*ChooseKernels(""))->isa);
}

CpuFeatures Everything() {
  CpuFeatures features;
  features.present = ~uint32_t{0};
  features.saves_avx = true;
  features.saves_avx512 = true;
  features.saves_amx = true;
  return features;
}

// `kvant bench --machine` lists these.
TEST(CpuFeatures, AllThatInstructionSetsNeedAreKnown) {
  const std::span<const CpuFeature> all = AllCpuFeatures();
  std::set<std::string> names;
  for (const CpuFeature feature : all) names.insert(CpuFeatureName(feature));
  EXPECT_EQ(names.size(), all.size());
  EXPECT_THAT(names, testing::IsSupersetOf({"avx2", "avx_vnni", "amx_bf16", "asimddp", "i8mm"}));
  for (const Isa& isa : kIsaList) {
    for (const CpuFeature feature : isa.required) EXPECT_THAT(all, testing::Contains(feature));
  }
}

TEST(CpuFeatures, NothingMissingIsNoReason) {
  for (const Isa& isa : kIsaList) EXPECT_EQ(WhyRefused(Everything(), isa.required), "");
  EXPECT_EQ(WhyRefused(CpuFeatures{}, {}), "");
}

TEST(CpuFeatures, ArmNeedsNoSavedRegisters) {
  CpuFeatures features;
  for (const CpuFeature feature : neon::kRequired) {
    features.present |= 1u << static_cast<unsigned>(feature);
  }
  EXPECT_EQ(WhyRefused(features, neon::kRequired), "");
  EXPECT_EQ(WhyRefused(features, i8mm::kRequired), "CPU lacks i8mm");
  EXPECT_EQ(WhyRefused(features, avx2::kRequired), "CPU lacks avx2");
}

TEST(CpuFeatures, EachMissingFeatureIsNamed) {
  for (const Isa& isa : kIsaList) {
    for (const CpuFeature feature : isa.required) {
      CpuFeatures features = Everything();
      features.present &= ~(1u << static_cast<unsigned>(feature));
      EXPECT_EQ(WhyRefused(features, isa.required),
                std::string("CPU lacks ") + CpuFeatureName(feature));
    }
  }
}

TEST(CpuFeatures, RegistersThatAreNotSavedAreAReason) {
  CpuFeatures features = Everything();
  features.saves_amx = false;
  EXPECT_EQ(WhyRefused(features, amx::kRequired),
            "the operating system does not save AMX registers");
  EXPECT_EQ(WhyRefused(features, avx512vbmi::kRequired), "");
  features.saves_avx512 = false;
  EXPECT_EQ(WhyRefused(features, avx512vbmi::kRequired),
            "the operating system does not save AVX-512 registers");
  EXPECT_EQ(WhyRefused(features, avxvnni::kRequired), "");
  EXPECT_EQ(WhyRefused(features, avx2::kRequired), "");
  features.saves_avx = false;
  EXPECT_EQ(WhyRefused(features, avx2::kRequired),
            "the operating system does not save AVX registers");
}

// The words of the first line of /proc/cpuinfo that begins so.
std::set<std::string> WordsOfCpuinfo(const std::string& begin) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> found;
  for (std::string line; found.empty() && std::getline(cpuinfo, line);) {
    if (line.rfind(begin, 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) found.insert(word);
  }
  return found;
}

// The kernel's own reading of CPUID, which hides what it does not save.
TEST(CpuFeatures, AgreeWithProcCpuinfo) {
  const CpuFeatures features = DetectCpuFeatures();
#if defined(__aarch64__)
  // An emulator shows the file of the machine below it.
  const std::set<std::string> words = WordsOfCpuinfo("Features");
  if (words.empty()) GTEST_SKIP() << "no features in /proc/cpuinfo";
  for (const CpuFeature feature : i8mm::kRequired) {
    const std::string name = CpuFeatureName(feature);
    EXPECT_EQ(features.Has(feature), words.contains(name)) << name;
  }
#else
  const std::set<std::string> flags = WordsOfCpuinfo("flags");
  if (flags.empty()) GTEST_SKIP() << "no x86 flags in /proc/cpuinfo";
  for (const CpuFeature feature : amx::kRequired) {
    // The kernel calls LZCNT by AMD's name for the group it came with.
    const std::string name = feature == CpuFeature::kLzcnt ? "abm" : CpuFeatureName(feature);
    EXPECT_EQ(features.Has(feature), flags.contains(name)) << name;
  }
  EXPECT_EQ(features.saves_avx, flags.contains("avx2"));
  EXPECT_EQ(features.saves_avx512, flags.contains("avx512f"));
  EXPECT_EQ(features.Has(CpuFeature::kAvxVnni), flags.contains("avx_vnni"));
  EXPECT_EQ(features.saves_amx, flags.contains("amx_tile"));
#endif
}

}  // namespace
}  // namespace kvant::cpu
