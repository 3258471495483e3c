// kvant bench: how fast a model runs on this machine, and how fast it could.
//
// tools/bench/bench_options.h lists the measurements. Tests: bench_speed.h; limits: bench_machine.h
// and bench_bound.h; the KV cache: bench_kv.h; the forms of the result: bench_output.h.
#include <fmt/format.h>

#include "base/result.h"
#include "base/version.h"
#include "tools/bench/bench_kv.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_speed.h"
#include "tools/bench/speed_table.h"
#include "tools/commands.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

using ModelBench = Status (*)(const BenchOptions& options, const BenchModel& model,
                              BenchReport& report);

Status BenchModels(const BenchOptions& options, ModelBench bench, BenchReport& report) {
  for (const int64_t maps : options.maps) {
    const MapUse map = maps == 1 ? MapUse::kMapped : MapUse::kRead;
    for (const std::string& path : options.models) {
      report.Progress(fmt::format("loading {}", path));
      KVANT_ASSIGN(const BenchModel model, OpenBenchModel(options, path, map));
      KVANT_TRY(bench(options, model, report));
    }
    for (const SyntheticModel& synthetic : options.synthetic) {
      report.Progress(fmt::format("making {}", synthetic.Name()));
      KVANT_ASSIGN(const BenchModel model, MakeBenchModel(options, synthetic, map));
      KVANT_TRY(bench(options, model, report));
    }
  }
  return {};
}

Status RunBench(const BenchOptions& options, BenchReport& report) {
  switch (options.mode) {
    case BenchMode::kMachine: return BenchMachine(options, report);
    case BenchMode::kSpeed:
      report.Begin(SpeedTable(options).Columns());
      return BenchModels(options, BenchSpeed, report);
    case BenchMode::kCompareNoCache:
      report.Begin(NoCacheColumns());
      return BenchModels(options, BenchNoCache, report);
    case BenchMode::kKvOperations:
      report.Begin(KvOperationColumns());
      return BenchModels(options, BenchKvOperations, report);
  }
  return {};
}

}  // namespace

int BenchCommand(CommandLine& line) {
  BenchOptions options;
  if (const auto code = ParseBenchOptions(line, &options)) return *code;
  ResultStream out;
  BenchReport report(options, out);
  const VersionInfo& version = Version();
  report.Note(
      fmt::format("build: {}, {} {}", version.commit, version.compiler, version.build_type));
  const Status status = RunBench(options, report);
  if (!status.ok()) {
    report.Abandon();
    return Fail(status.error());
  }
  report.Finish();
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
