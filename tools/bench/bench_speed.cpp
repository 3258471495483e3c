// The tests of kvant bench one after the other, and a row for each.
#include "tools/bench/bench_speed.h"
#include "base/counted.h"
#include "cpu/kernels/table.h"
#include "engine/run/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <numeric>

#include "base/result.h"
#include "base/thread_pool.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/speed_table.h"
#include "tools/options/json.h"
#include "tools/options/model_facts.h"

namespace kvant::tools {
namespace {

// Bytes of the largest memory on which the bandwidth of a KV cache is measured.
constexpr size_t kKvSampleBytesMax = size_t{256} << 20;

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%FT%TZ", &utc);
  return text;
}

// "pp512", "tg128 @ d8192", "pp512+tg128", "4 x tg128", "tg128 of 4 beams", "tg128 mtp:2"; of
// encoder-decoders "src512" and "tg128 @ src512"
std::string TestName(const SpeedCase& test) {
  if (test.encodes) return fmt::format("src{}", test.source);
  std::string name = test.n_prompt > 0 ? fmt::format("pp{}", test.n_prompt) : "";
  if (test.n_gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", test.n_gen);
  if (test.sequences > 1) name = fmt::format("{} x {}", test.sequences, name);
  if (test.beams > 1) name += fmt::format(" of {} beams", test.beams);
  if (test.guesses > 0) name += fmt::format(" mtp:{}", test.guesses);
  if (test.source > 0) name += fmt::format(" @ src{}", test.source);
  if (test.depth > 0) name += fmt::format(" @ d{}", test.depth);
  return name;
}

// The largest memory of this process since the last call of ResetPeakMemory, in bytes.
uint64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

struct SpeedResult {
  SpeedCase test;
  std::string time;  // RFC 3339, when it began
  std::vector<double> seconds;
  std::vector<double> first_seconds;
  uint64_t peak_memory = 0;
  SpeedTimes last;  // of the last repetition

  std::vector<double> Speeds() const {
    std::vector<double> speeds;
    for (const double s : seconds) speeds.push_back(static_cast<double>(test.tokens()) / s);
    return speeds;
  }
};

// The machine's speeds from which the bounds of a model are computed. Each is measured when it is
// first asked for.
class LimitCache {
 public:
  explicit LimitCache(const Model& model) : model_(model) {}

  Result<SpeedLimits> Get(int threads, double kv_bytes) {
    Entry& entry = entries_[threads];
    if (!entry.measured) {
      ThreadPool team(threads);
      entry.compute = MeasureCompute(team, *model_.kernels().peaks);
      entry.weights = MeasureRead(team, *model_.kernels().peaks, DecodeWeights(model_));
      entry.measured = true;
    }
    // A small cache stays in the processor's own caches, so its size matters.
    size_t sample = size_t{1} << 20;
    while (sample < kKvSampleBytesMax && static_cast<double>(sample) < kv_bytes) sample *= 2;
    double& kv = entry.kv_by_size[sample];
    if (kv == 0) {
      ThreadPool team(threads);
      KVANT_ASSIGN(kv, MeasureAnonymousRead(team, *model_.kernels().peaks, sample));
    }
    return SpeedLimits{entry.weights, kv, entry.compute.int8, entry.compute.int16,
                       entry.compute.float32};
  }

  const ComputeLimits& compute(int threads) { return entries_[threads].compute; }

 private:
  struct Entry {
    bool measured = false;
    ComputeLimits compute;
    double weights = 0;
    std::map<size_t, double> kv_by_size;
  };
  const Model& model_;
  std::map<int, Entry> entries_;
};

class SpeedBench {
 public:
  SpeedBench(const BenchOptions& options, const BenchModel& model, BenchReport& report)
      : options_(options), model_(model), report_(report), table_(options), limits_(*model.model) {}

  Status RunAll() {
    for (const int64_t chunk : options_.chunks) {
      for (const KvTypes& types : options_.kv_types) {
        for (const int64_t threads : options_.threads) {
          const SessionOptions session = options_.Session(types, threads, chunk);
          if (options_.sources.empty()) KVANT_TRY(RunTests(session, 0));
          for (const int64_t source : options_.sources) {
            KVANT_TRY(RunEncoderTest(session, source));
            KVANT_TRY(RunTests(session, source));
          }
        }
      }
    }
    return {};
  }

 private:
  // Runs all tests that generate, behind a source of `source` tokens if that is above 0.
  Status RunTests(const SessionOptions& session, int64_t source) {
    for (const int64_t batch : options_.batches) KVANT_TRY(RunBatch(session, batch, source));
    return RunBeamTests(session, source);
  }

  // Reading a source, a new one each time.
  Status RunEncoderTest(SessionOptions session, int64_t source) {
    session.context = 1;
    session.sequences = 1;
    KVANT_TRY(CheckMemory(*model_.model, session, source));
    KVANT_ASSIGN(const auto runner, Runner::Create(model_.model, session));
    const SpeedCase test{.source = source, .encodes = true};
    uint64_t number = 0;
    return Measure(runner->options(), test,
                   [&](const SpeedCase& now) -> Result<SpeedRunner::Times> {
                     KVANT_ASSIGN(const double seconds, RunEncoder(*runner, now, ++number));
                     return SpeedRunner::Times{seconds, 0};
                   });
  }

  // The tests of `batch` sequences side by side, without beams, at all depths.
  Status RunBatch(SessionOptions session, int64_t batch, int64_t source) {
    std::vector<SpeedCase> tests;
    for (const int64_t n : options_.prompts) tests.push_back({.n_prompt = n});
    const bool plain_decode =
        std::find(options_.beams.begin(), options_.beams.end(), 1) != options_.beams.end();
    for (const int64_t n : options_.generated) {
      if (plain_decode) tests.push_back({.n_gen = n});
    }
    for (const int64_t n : options_.generated) {
      if (!plain_decode || batch > 1 || source > 0) continue;
      for (const int64_t guesses : options_.drafts) {
        tests.push_back({.n_gen = n, .guesses = guesses});
      }
    }
    for (const auto& [p, n] : options_.pairs) tests.push_back({.n_prompt = p, .n_gen = n});
    std::erase_if(tests, [](const SpeedCase& test) { return test.tokens() == 0; });
    if (tests.empty()) return {};
    int64_t longest = 0;
    for (const SpeedCase& test : tests) longest = std::max(longest, test.tokens() + test.guesses);
    session.context = *std::max_element(options_.depths.begin(), options_.depths.end()) + longest;
    session.sequences = batch;
    KVANT_ASSIGN(SpeedRunner runner, SpeedRunner::Create(model_.model, session, source));
    for (const int64_t depth : options_.depths) {
      if (depth > 0)
        report_.Progress(
            fmt::format("{}: {} before the tests", model_.name, Counted(depth, "token")));
      KVANT_TRY(runner.SetDepth(depth));
      for (SpeedCase test : tests) {
        test.depth = depth;
        test.sequences = batch;
        test.source = source;
        KVANT_TRY(Measure(session, test, [&](const SpeedCase& now) { return runner.Run(now); }));
      }
    }
    return {};
  }

  Status RunBeamTests(SessionOptions session, int64_t source) {
    const int64_t beams_max = *std::max_element(options_.beams.begin(), options_.beams.end());
    const int64_t longest = *std::max_element(options_.generated.begin(), options_.generated.end());
    if (beams_max == 1 || longest == 0) return {};
    const int64_t depth_max = *std::max_element(options_.depths.begin(), options_.depths.end());
    session.context = std::max<int64_t>(depth_max, 1) + longest + 1;
    const auto tokens = RandomTokens(*model_.model, session.context, 1);
    session.sequences = 2 * beams_max;
    session.prefix_cache = true;
    KVANT_TRY(CheckMemory(*model_.model, session, session.context + session.sequences * longest));
    KVANT_ASSIGN(const auto runner, Runner::Create(model_.model, session));
    for (const int64_t depth : options_.depths) {
      for (const int64_t beams : options_.beams) {
        for (const int64_t n : options_.generated) {
          if (beams == 1 || n == 0) continue;
          const SpeedCase test{.n_gen = n, .depth = depth, .beams = beams, .source = source};
          KVANT_TRY(Measure(runner->options(), test,
                            [&](const SpeedCase& now) { return RunBeams(*runner, tokens, now); }));
        }
      }
    }
    return {};
  }

  // A warm-up, the repetitions and the row. `run` runs a test once.
  template <class RunTest>
  Status Measure(const SessionOptions& session, const SpeedCase& test, const RunTest& run) {
    SpeedResult result;
    result.test = test;
    result.time = Now();
    ResetPeakMemory();
    const std::string name = fmt::format("{}: {}", model_.name, TestName(test));
    report_.Progress(fmt::format("{}: warm-up", name));
    // One generated token warms decode up, since the weights are the same for every token.
    SpeedCase warm_up = test;
    warm_up.n_gen = std::min<int64_t>(test.n_gen, 1);
    KVANT_TRY(Discard(run(warm_up)));
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      report_.Progress(fmt::format("{}: {} of {}", name, i + 1, options_.repetitions));
      KVANT_ASSIGN(const SpeedRunner::Times times, run(test));
      result.seconds.push_back(times.seconds);
      result.first_seconds.push_back(times.first_seconds);
      result.last = times;
    }
    result.peak_memory = PeakMemory();
    return AddRow(session, result);
  }

  static Status Discard(const Result<SpeedRunner::Times>& result) {
    return result.ok() ? Status() : Status(result.error());
  }

  Status AddRow(const SessionOptions& session, const SpeedResult& result) {
    Json row = ModelFields(model_, session);
    AddTimes(result, row);
    report_.Note(SpeedTable::Common(row));
    if (!options_.no_bounds) KVANT_TRY(AddBound(session, result, row));
    const std::string explanation = table_.Explanation();
    if (!explanation.empty()) report_.Note(explanation);
    report_.AddRow(row, {table_.Cells(row, TestName(result.test))});
    return {};
  }

  void AddTimes(const SpeedResult& result, Json& row) {
    std::vector<double> nanoseconds;
    std::vector<uint64_t> samples_ns;
    for (const double s : result.seconds) {
      nanoseconds.push_back(s * 1e9);
      samples_ns.push_back(static_cast<uint64_t>(std::llround(s * 1e9)));
    }
    const std::vector<double> speeds = result.Speeds();
    row["n_prompt"] = result.test.n_prompt;
    row["n_gen"] = result.test.n_gen;
    row["n_depth"] = result.test.depth;
    row["n_seqs"] = result.test.sequences;
    row["n_beams"] = result.test.beams;
    row["n_source"] = result.test.source;
    row["test_time"] = result.time;
    row["avg_ns"] = std::llround(Mean(nanoseconds));
    row["stddev_ns"] = std::llround(StandardDeviation(nanoseconds));
    row["median_ns"] = std::llround(Median(nanoseconds));
    row["avg_ts"] = Mean(speeds);
    row["stddev_ts"] = StandardDeviation(speeds);
    row["median_ts"] = Median(speeds);
    row["first_token_ns"] = std::llround(Mean(result.first_seconds) * 1e9);
    row["load_ns"] = std::llround(model_.load_seconds * 1e9);
    row["peak_memory"] = result.peak_memory;
    if (options_.settings.options.offload == Offload::kAttention) {
      const int64_t steps = (result.test.n_prompt > 0 ? 1 : 0) + result.test.n_gen;
      row["bus_bytes_per_step"] =
          result.last.bus_bytes / static_cast<uint64_t>(std::max<int64_t>(steps, 1));
    }
    if (!options_.drafts.empty()) AddGuesses(result, row);
    row["samples_ns"] = samples_ns;
    row["samples_ts"] = speeds;
  }

  // Adds what guesses were worth. A pass with guesses is compared with one of the test before it
  // that had none: both of the same number of tokens at the same depth.
  void AddGuesses(const SpeedResult& result, Json& row) {
    const SpeedTimes& last = result.last;
    const double seconds = Median(result.seconds);
    if (result.test.guesses == 0) plain_[{result.test.n_gen, result.test.depth}] = seconds;
    const double plain =
        plain_[{result.test.n_gen, result.test.depth}] / static_cast<double>(result.test.n_gen);
    row["n_guesses"] = result.test.guesses;
    row["n_passes"] = last.passes;
    row["n_guessed"] = last.guessed;
    row["n_right"] = last.right;
    row["pass_ratio"] =
        last.passes > 0 && plain > 0 ? seconds / static_cast<double>(last.passes) / plain : 0;
  }

  Status AddBound(const SessionOptions& session, const SpeedResult& result, Json& row) {
    const graph::Work work = CountWork(*model_.model, session, result.test);
    KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(*model_.model, session));
    const int64_t positions = result.test.depth + result.test.n_prompt + result.test.n_gen;
    const double kv_bytes = KvBytes(plan, positions) * static_cast<double>(result.test.sequences);
    KVANT_ASSIGN(const SpeedLimits limits, limits_.Get(session.threads, kv_bytes));
    const SpeedBound bound = BoundOf(work, limits);
    const double bound_ts =
        bound.seconds > 0 ? static_cast<double>(result.test.tokens()) / bound.seconds : 0;
    row["bound_kind"] = bound.kind;
    row["bound_ts"] = bound_ts;
    row["bound_fraction"] = bound_ts > 0 ? row["avg_ts"].get<double>() / bound_ts : 0;
    row["work_weight_bytes"] = work.weight_bytes;
    row["work_kv_bytes"] = work.cache_bytes;
    row["work_int8_macs"] = work.int8_macs;
    row["work_int16_macs"] = work.int16_macs;
    row["work_float_macs"] = work.float_macs;
    row["limit_weights_gbs"] = limits.weights_per_second * 1e-9;
    row["limit_kv_gbs"] = limits.kv_per_second * 1e-9;
    row["limit_int8_gmacs"] = limits.int8 * 1e-9;
    row["limit_int16_gmacs"] = limits.int16 * 1e-9;
    row["limit_float_gmacs"] = limits.float32 * 1e-9;
    const ComputeLimits& compute = limits_.compute(session.threads);
    row["limit_clock_ghz"] = compute.clock_hz * 1e-9;
    report_.Note(fmt::format(
        "limits of {}: weights {:.1f} GB/s; int8 {:.0f}, int16 {:.0f}, float {:.0f} "
        "GMAC/s ({:.1f}, {:.1f}, {:.1f} per cycle and thread, {:.2f} GHz)",
        Counted(session.threads, "thread"), limits.weights_per_second * 1e-9, limits.int8 * 1e-9,
        limits.int16 * 1e-9, limits.float32 * 1e-9, compute.PerCycle(limits.int8, session.threads),
        compute.PerCycle(limits.int16, session.threads),
        compute.PerCycle(limits.float32, session.threads), compute.clock_hz * 1e-9));
    return {};
  }

  const BenchOptions& options_;
  const BenchModel& model_;
  BenchReport& report_;
  SpeedTable table_;
  LimitCache limits_;
  std::map<std::pair<int64_t, int64_t>, double> plain_;  // median seconds by n_gen and depth
};

}  // namespace

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double StandardDeviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Json ModelFields(const BenchModel& model, const SessionOptions& options) {
  const ModelFacts facts = GatherFacts(model.model->file());
  Json out = BuildFields();
  out["gpu_info"] = "";
  out["backends"] = "CPU";
  out["isa"] = model.model->kernels().isa;
  out["model_filename"] = model.name;
  out["model_type"] = facts.description;
  out["model_size"] = facts.tensor_bytes;
  out["model_n_params"] = facts.parameters;
  out["n_batch"] = options.chunk;
  out["n_ubatch"] = options.chunk;
  out["n_threads"] = options.threads;
  // Fields of llama-bench that scripts look for; kvant has no options for them.
  out["cpu_mask"] = "0x0";
  out["cpu_strict"] = false;
  out["poll"] = 0;
  out["type_k"] = LlamaKvTypeName(options.k_type);
  out["type_v"] = LlamaKvTypeName(options.v_type);
  out["n_gpu_layers"] = 0;
  out["n_cpu_moe"] = 0;
  out["split_mode"] = "none";
  out["main_gpu"] = 0;
  out["no_kv_offload"] = false;
  out["flash_attn"] = true;
  out["devices"] = "none";
  out["tensor_split"] = "0.00";
  out["tensor_buft_overrides"] = "none";
  out["use_mmap"] = model.mapped;
  out["use_direct_io"] = false;
  out["embeddings"] = false;
  out["no_op_offload"] = 0;
  out["no_host"] = false;
  return out;
}

Status BenchSpeed(const BenchOptions& options, const BenchModel& model, BenchReport& report) {
  KVANT_ASSIGN(const BenchOptions of_model, options.For(*model.model));
  return SpeedBench(of_model, model, report).RunAll();
}

}  // namespace kvant::tools
