#include "tools/inspect/inspect_cpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/dispatch.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/table.h"

namespace kvant::tools {

Result<Json> CpuJson() {
  Json isas = Json::array();
  for (const cpu::IsaReport& report : cpu::ReportIsas()) {
    isas.push_back({{"name", report.name},
                    {"compiled", report.compiled},
                    {"supported", report.supported},
                    {"refused_because", report.reason}});
  }
  KVANT_ASSIGN(const cpu::KernelTable* chosen, cpu::ChooseKernelsFromEnvironment());
  KVANT_ASSIGN(const cpu::FloatGemm* gemm, cpu::ChooseFloatGemmFromEnvironment());
  std::vector<std::string> gemms;
  for (const cpu::FloatGemm& entry : cpu::AllFloatGemms()) gemms.emplace_back(entry.name);
  std::string reason;
  const int threads = DefaultThreadCount(&reason);
  return Json{{"isa", chosen->isa},       {"isas", std::move(isas)},  {"threads", threads},
              {"threads_reason", reason}, {"float_gemm", gemm->name}, {"float_gemms", gemms}};
}

std::string CpuText(const Json& cpu) {
  const std::string chosen = cpu["isa"].get<std::string>();
  std::string out = fmt::format("instruction set  {}\n", chosen);
  for (const Json& isa : cpu["isas"]) {
    const std::string name = isa["name"].get<std::string>();
    const std::string reason = isa["refused_because"].get<std::string>();
    std::string verdict = "usable";
    if (!isa["supported"].get<bool>()) verdict = "refused: " + reason;
    if (name == chosen) verdict = "chosen";
    out += fmt::format("  {:<15}{}\n", name, verdict);
  }
  out += fmt::format("threads          {} ({})\n", cpu["threads"].get<int>(),
                     cpu["threads_reason"].get<std::string>());
  return out + fmt::format("float matrices   {} (this build has {})\n",
                           cpu["float_gemm"].get<std::string>(),
                           fmt::join(cpu["float_gemms"].get<std::vector<std::string>>(), ", "));
}

}  // namespace kvant::tools
