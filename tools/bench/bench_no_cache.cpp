// Measures the worth of the KV cache: one run with the cache, and one without it, in which every
// step computes the whole sequence anew.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "tools/bench/bench_kv.h"
#include "tools/options/json.h"

namespace kvant::tools {
namespace {

class NoCacheBench {
 public:
  NoCacheBench(const BenchOptions& options, const BenchModel& model, BenchReport& report)
      : options_(options), model_(model), report_(report) {}

  Status Run(SessionOptions session) {
    const int64_t depth_max = *std::max_element(options_.depths.begin(), options_.depths.end());
    const int64_t tokens = *std::max_element(options_.generated.begin(), options_.generated.end());
    session.context = std::max(depth_max + 1, tokens);
    KVANT_ASSIGN(SpeedRunner cached, SpeedRunner::Create(model_.model, session, 0));
    session.kv_cache = false;
    KVANT_ASSIGN(SpeedRunner uncached, SpeedRunner::Create(model_.model, session, 0));
    for (const int64_t depth : options_.depths) {
      KVANT_TRY(AddRow(cached, uncached, {.n_gen = 1, .depth = depth},
                       fmt::format("step at {}", depth), options_.repetitions));
    }
    for (const int64_t n : options_.generated) {
      // One repetition: `n` steps are many already.
      KVANT_TRY(AddRow(cached, uncached, {.n_gen = n}, fmt::format("first {} tokens", n), 1));
    }
    return {};
  }

 private:
  Result<double> Median(SpeedRunner& runner, const SpeedCase& test, const std::string& name,
                        int64_t repetitions) {
    report_.Progress(fmt::format("{}: {}{}", model_.name, name,
                                 runner.options().kv_cache ? "" : " without a cache"));
    KVANT_TRY(runner.SetDepth(test.depth));
    std::vector<double> seconds;
    for (int64_t i = 0; i < repetitions; ++i) {
      KVANT_ASSIGN(const SpeedRunner::Times times, runner.Run(test));
      seconds.push_back(times.seconds);
    }
    return tools::Median(seconds);
  }

  Status AddRow(SpeedRunner& cached, SpeedRunner& uncached, const SpeedCase& test,
                const std::string& name, int64_t repetitions) {
    KVANT_ASSIGN(const double with, Median(cached, test, name, repetitions));
    KVANT_ASSIGN(const double without, Median(uncached, test, name, repetitions));
    const SessionOptions& session = cached.options();
    Json row = ModelFields(model_, session);
    row["test"] = name;
    row["n_depth"] = test.depth;
    row["n_gen"] = test.n_gen;
    row["cached_ns"] = std::llround(with * 1e9);
    row["uncached_ns"] = std::llround(without * 1e9);
    row["ratio"] = without / with;
    report_.AddRow(
        row, {{row["model_type"], std::to_string(session.threads), row["type_k"], row["type_v"],
               name, fmt::format("{:.3f}", with * 1e3), fmt::format("{:.3f}", without * 1e3),
               fmt::format("{:.1f}", without / with)}});
    return {};
  }

  const BenchOptions& options_;
  const BenchModel& model_;
  BenchReport& report_;
};

}  // namespace

std::vector<MarkdownColumn> NoCacheColumns() {
  return {{"model", 22}, {"threads", 7},   {"type_k", 6},       {"type_v", 6},
          {"test", 16},  {"cached ms", 9}, {"uncached ms", 11}, {"ratio", 6}};
}

Status BenchNoCache(const BenchOptions& options, const BenchModel& model, BenchReport& report) {
  NoCacheBench bench(options, model, report);
  for (const KvTypes& types : options.kv_types) {
    for (const int64_t threads : options.threads) {
      KVANT_TRY(bench.Run(options.Session(types, threads, options.chunks.front())));
    }
  }
  return {};
}

}  // namespace kvant::tools
