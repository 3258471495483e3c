#include "cpu/dispatch.h"

#include <cstdlib>

#include "cpu/isa_list.h"

namespace kvant::cpu {
namespace {

// "avx512vnni, avx2, scalar"
std::string KnownNames() {
  std::string names;
  for (const Isa& isa : kIsaList) names += (names.empty() ? "" : ", ") + std::string(isa.name);
  return names;
}

}  // namespace

IsaAnswer Ask(const Isa& isa, const CpuFeatures& features) {
  const std::string reason =
      isa.compiled ? WhyRefused(features, isa.required) : "not compiled in this build";
  if (!reason.empty()) return {{isa.name, isa.compiled, false, reason}, nullptr};
  const KernelTable* kernels = isa.kernels();
  const bool supported = kernels != nullptr;
  const char* refused = supported ? "" : "the operating system refuses its registers";
  return {{isa.name, isa.compiled, supported, refused}, kernels};
}

std::vector<IsaReport> ReportIsas() {
  const CpuFeatures features = DetectCpuFeatures();
  std::vector<IsaReport> reports;
  for (const Isa& isa : kIsaList) reports.push_back(Ask(isa, features).report);
  return reports;
}

Result<const KernelTable*> ChooseKernels(std::string_view name) {
  const CpuFeatures features = DetectCpuFeatures();
  for (const Isa& isa : kIsaList) {
    if (!name.empty() && name != isa.name) continue;
    const auto [report, kernels] = Ask(isa, features);
    if (kernels != nullptr) return kernels;
    if (!name.empty()) {
      return MakeError(ErrorCode::kNotSupported, "instruction set {} cannot be used: {}", name,
                       report.reason);
    }
  }
  return MakeError(ErrorCode::kInvalid, "unknown instruction set '{}', expected one of {}", name,
                   KnownNames());
}

Result<const KernelTable*> ChooseKernelsFromEnvironment() {
  const char* name = std::getenv("KVANT_ISA");
  Result<const KernelTable*> chosen = ChooseKernels(name != nullptr ? name : "");
  if (chosen.ok()) return chosen;
  return MakeError(chosen.error().code, "KVANT_ISA: {}", chosen.error().message);
}

}  // namespace kvant::cpu
