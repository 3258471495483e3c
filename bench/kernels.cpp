// Kernel benchmark: every problem of the text files in problems/, and every encoder, on every
// instruction set of this machine. A matrix kernel is first checked against the double-precision
// reference, then timed.
//
//   kvant_bench_kernels [--problems=FILE] [Google Benchmark's own flags]
//   kvant_bench_kernels --on-demand=ISA/PROBLEM     for bench/compare_kernels
//
// GB/s counts the bytes of the weights, or of the keys and values; MAC/cycle divides by core
// cycles, at the clock that a chain of dependent operations shows at start-up. Both are those of
// the fastest of the runs, as the machine's limits are; the times are means.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>

#include "base/aligned_buffer.h"
#include "cpu/dispatch.h"
#include "cpu/peaks.h"
#include "tests/cpu/attention_reference.h"
#include "tests/cpu/matmul_problem.h"

namespace kvant::cpu {
namespace {

// A line of a problem file: a name, then numbers by name.
struct ProblemLine {
  std::string name;
  std::map<std::string, int64_t> numbers;

  int64_t operator[](const std::string& key) const { return numbers.at(key); }
  bool Has(std::initializer_list<const char*> keys) const {
    return numbers.size() == keys.size() &&
           std::all_of(keys.begin(), keys.end(), [&](const char* key) {
             const auto found = numbers.find(key);
             return found != numbers.end() && found->second > 0;
           });
  }
};

ProblemLine ParseProblem(const std::string& line) {
  std::istringstream words(line);
  ProblemLine problem;
  words >> problem.name;
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size() - 1);
    problem.numbers[word.substr(0, equals)] = std::atoll(word.c_str() + equals + 1);
  }
  return problem;
}

std::optional<KvType> FindKvType(const std::string& name) {
  if (name == "attention_f32") return KvType::kF32;
  if (name == "attention_f16") return KvType::kF16;
  if (name == "attention_q8") return KvType::kQ8;
  return std::nullopt;
}

// "q4_k rows=8192 cols=2048 tokens=1", "attention_f16 rows=1 heads=4 dim=64 context=8192".
bool IsProblem(const ProblemLine& line) {
  if (FindKvType(line.name)) return line.Has({"rows", "heads", "dim", "context"});
  const quant::FormatTraits* format = quant::FindFormat(line.name);
  return format != nullptr && line.Has({"rows", "cols", "tokens"}) &&
         line["cols"] % format->block_values == 0;
}

// A problem that is ready to run, and what one run reads and multiplies.
struct ReadyProblem {
  std::function<void()> run;
  double bytes = 0;  // of weights, or of keys and values
  double macs = 0;
  std::string failure;  // where the kernel differs from the reference, or ""
};

// Seconds of one run.
double TimeRun(const ReadyProblem& problem) {
  const auto start = std::chrono::steady_clock::now();
  problem.run();
  benchmark::ClobberMemory();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return seconds.count();
}

double MeasureCyclesPerSecond() {
  double best = 0;
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t cycles = RunClock(400);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(cycles) / seconds.count());
  }
  return best;
}

// The first output that is further from the reference than rounding explains, or "".
std::string CheckProblem(const MatMulProblem& problem) {
  const std::vector<float> out = problem.Run();
  const int64_t row_step = std::max<int64_t>(problem.rows() / 37, 1);
  const int64_t token_step = std::max<int64_t>(problem.tokens() / 7, 1);
  for (int64_t token = 0; token < problem.tokens(); token += token_step) {
    for (int64_t row = 0; row < problem.rows(); row += row_step) {
      const double expected = problem.Reference(token, row);
      const float found = out[static_cast<size_t>(token * problem.rows() + row)];
      if (!(std::abs(found - expected) <= problem.ErrorBound(token, row))) {
        return fmt::format("row {} token {}: expected {}, found {}", row, token, expected, found);
      }
    }
  }
  return "";
}

ReadyProblem ReadyMatMul(const KernelTable& kernels, const ProblemLine& line) {
  const quant::FormatTraits& format = *quant::FindFormat(line.name);
  const int64_t rows = line["rows"];
  const int64_t cols = line["cols"];
  const int64_t tokens = line["tokens"];
  const auto problem = std::make_shared<MatMulProblem>(kernels, format, rows, cols, tokens);
  const auto out = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * tokens));
  return {[problem, out] { problem->Multiply(problem->Task(out->data())); },
          static_cast<double>(rows * format.row_bytes(cols)),
          static_cast<double>(rows * cols * tokens), CheckProblem(*problem)};
}

// Attention of the last rows of a context in one kv head. The runs go through so many heads that
// they exceed the caches, so that keys and values come from memory.
ReadyProblem ReadyAttention(const KernelTable& kernels, const ProblemLine& line) {
  test::Shape shape;
  shape.k_dim = shape.v_dim = static_cast<int>(line["dim"]);
  shape.heads_per_kv = static_cast<int>(line["heads"]);
  shape.k_type = shape.v_type = *FindKvType(line.name);
  shape.cache_end = line["context"];
  const size_t bytes = KvRowBytes(shape.k_type, shape.cache_end * 2 * shape.k_dim);
  constexpr size_t kBytes = 96u << 20;
  std::vector<std::shared_ptr<test::Cache>> caches;
  for (size_t i = 0; i * bytes < kBytes || i == 0; ++i) {
    caches.push_back(std::make_shared<test::Cache>(shape, std::vector<int64_t>{1 << 20}));
    test::FillRandom(shape, *caches.back(), static_cast<uint32_t>(i));
  }
  const test::Rows rows = test::RandomRows(shape, test::LastPositions(shape, line["rows"]), 1);
  const std::vector<float> found = test::Attend(kernels, shape, *caches[0], rows);
  const test::Exact exact =
      test::ExactAttention(shape, *caches[0], rows.queries.data(), 0, rows.positions[0]);
  std::string failure;
  for (size_t d = 0; d < exact.out.size() && failure.empty(); ++d) {
    if (std::abs(found[d] - exact.out[d]) <= exact.bound[d]) continue;
    failure = "further from the reference than rounding explains";
  }
  const size_t scratch_bytes = kernels.attention_scratch_bytes(
      line["rows"], shape.heads_per_kv, shape.k_dim, shape.v_dim, shape.key_form);
  const std::shared_ptr<std::byte[]> scratch = AllocateBytes(scratch_bytes);
  const auto run = [&kernels, shape, caches, rows, scratch, scratch_bytes,
                    out = std::vector<float>(found.size()), turn = size_t{0}]() mutable {
    test::AttendInto(kernels, shape, caches[turn++ % caches.size()]->runs(), {}, rows.positions,
                     rows.queries.data(), out.data(), {scratch.get(), scratch_bytes});
  };
  const double macs =
      static_cast<double>(line["rows"] * line["heads"] * 2 * line["dim"]) *
      (static_cast<double>(line["context"]) - static_cast<double>(line["rows"]) / 2);
  return {run, static_cast<double>(bytes), macs, failure};
}

ReadyProblem MakeReady(const KernelTable& kernels, const ProblemLine& line) {
  return FindKvType(line.name) ? ReadyAttention(kernels, line) : ReadyMatMul(kernels, line);
}

void RunProblem(benchmark::State& state, const KernelTable& kernels, const ProblemLine& line,
                double cycles_per_second) {
  const ReadyProblem problem = MakeReady(kernels, line);
  if (!problem.failure.empty()) {
    state.SkipWithError(problem.failure.c_str());
    return;
  }
  double fastest = std::numeric_limits<double>::infinity();
  for ([[maybe_unused]] auto _ : state) fastest = std::min(fastest, TimeRun(problem));
  state.counters["GB/s"] = problem.bytes * 1e-9 / fastest;
  state.counters["MAC/cycle"] = problem.macs / cycles_per_second / fastest;
}

enum class Weights { kNone, kImportance };

// Encoding of 64 rows of 2048 values, which stay in the cache. The format by its address: Google
// Benchmark copies its arguments, and a format is known by where it lies.
void RunEncode(benchmark::State& state, const KernelTable& kernels,
               const quant::FormatTraits* format, Weights weights, double cycles_per_second) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kCols = 2048;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::lognormal_distribution<float> log_normal(0.0f, 1.5f);
  std::vector<float> values(kRows * kCols);
  std::vector<float> importance(kCols);
  for (float& value : values) value = normal(random);
  for (float& weight : importance) weight = log_normal(random);
  std::vector<std::byte> blocks(static_cast<size_t>(kRows * format->row_bytes(kCols)));
  const EncodeTask task{
      format, values.data(), weights == Weights::kNone ? nullptr : importance.data(),
      kRows,  kCols,         blocks.data()};
  const EncodeFunction encode = kernels.encode[static_cast<size_t>(FormatIndex(*format))];
  for ([[maybe_unused]] auto _ : state) {
    encode(task);
    benchmark::ClobberMemory();
  }
  const double encoded =
      static_cast<double>(state.iterations()) * static_cast<double>(kRows * kCols);
  state.counters["Mvalue/s"] = benchmark::Counter(encoded * 1e-6, benchmark::Counter::kIsRate);
  state.counters["cycles/value"] = benchmark::Counter(
      encoded / cycles_per_second, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void RegisterEncoders(double cycles_per_second) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const IsaReport& isa : ReportIsas()) {
      const Result<const KernelTable*> kernels = ChooseKernels(isa.name);
      if (!kernels.ok()) continue;
      const std::string name = fmt::format("{}/encode {}", isa.name, format.name);
      benchmark::RegisterBenchmark(name.c_str(), RunEncode, *kernels.value(), &format,
                                   Weights::kNone, cycles_per_second);
      if (!format.quantized()) continue;
      benchmark::RegisterBenchmark((name + " weighted").c_str(), RunEncode, *kernels.value(),
                                   &format, Weights::kImportance, cycles_per_second);
    }
  }
}

// Takes --problems=FILE out of the arguments.
std::vector<std::string> TakeProblemPaths(int& argc, char** argv) {
  constexpr std::string_view kFlag = "--problems=";
  std::vector<std::string> paths;
  char** kept = std::remove_if(argv + 1, argv + argc, [&](const char* argument) {
    if (!std::string_view(argument).starts_with(kFlag)) return false;
    paths.emplace_back(argument + kFlag.size());
    return true;
  });
  argc = static_cast<int>(kept - argv);
  if (paths.empty()) {
    paths = {KVANT_SOURCE_DIR "/bench/problems/matmul.txt",
             KVANT_SOURCE_DIR "/bench/problems/attention.txt"};
  }
  return paths;
}

constexpr std::string_view kProblemForm =
    "'FORMAT rows=N cols=N tokens=N' or 'attention_TYPE rows=N heads=N dim=N context=N'";

// False where the file cannot be read or a line is wrong, which has been said then.
bool RegisterProblems(const std::string& path, double cycles_per_second) {
  std::ifstream file(path);
  if (!file) {
    fmt::print(stderr, "{}: cannot be read\n", path);
    return false;
  }
  int line_number = 0;
  for (std::string text; std::getline(file, text);) {
    ++line_number;
    if (text.empty() || text[0] == '#') continue;
    const ProblemLine line = ParseProblem(text);
    if (!IsProblem(line)) {
      fmt::print(stderr, "{}:{}: expected {}, found '{}'\n", path, line_number, kProblemForm, text);
      return false;
    }
    for (const IsaReport& isa : ReportIsas()) {
      const Result<const KernelTable*> kernels = ChooseKernels(isa.name);
      if (!kernels.ok()) continue;
      const std::string name = fmt::format("{}/{}", isa.name, text);
      benchmark::RegisterBenchmark(name.c_str(), RunProblem, *kernels.value(), line,
                                   cycles_per_second);
    }
  }
  return true;
}

// Runs "ISA/PROBLEM" for as many milliseconds as each line of stdin says and answers with the mean
// seconds of a run, so that several such processes can take turns. Returns the exit status.
int RunOnDemand(const std::string& name) {
  const size_t slash = std::min(name.find('/'), name.size());
  const Result<const KernelTable*> kernels = ChooseKernels(name.substr(0, slash));
  const ProblemLine line = ParseProblem(name.substr(std::min(slash + 1, name.size())));
  if (!kernels.ok() || !IsProblem(line)) {
    fmt::print(stderr, "--on-demand: {}\n",
               kernels.ok()
                   ? fmt::format("expected ISA/PROBLEM with {}, found '{}'", kProblemForm, name)
                   : kernels.error().message);
    return 2;
  }
  const ReadyProblem problem = MakeReady(*kernels.value(), line);
  if (!problem.failure.empty()) {
    fmt::print(stderr, "{}: {}\n", name, problem.failure);
    return 1;
  }
  for (double milliseconds = 0; std::cin >> milliseconds;) {
    double seconds = TimeRun(problem);
    int64_t runs = 1;
    for (; seconds < milliseconds * 1e-3; ++runs) seconds += TimeRun(problem);
    fmt::print("{:.9g}\n", seconds / static_cast<double>(runs));
    std::fflush(stdout);
  }
  return 0;
}

int Main(int argc, char** argv) {
  constexpr std::string_view kOnDemand = "--on-demand=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(kOnDemand)) {
    return RunOnDemand(argv[1] + kOnDemand.size());
  }
  const std::vector<std::string> paths = TakeProblemPaths(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const double cycles_per_second = MeasureCyclesPerSecond();
  fmt::print(stderr, "{:.2f} GHz\n", cycles_per_second * 1e-9);
  for (const std::string& path : paths) {
    if (!RegisterProblems(path, cycles_per_second)) return 1;
  }
  RegisterEncoders(cycles_per_second);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace kvant::cpu

int main(int argc, char** argv) { return kvant::cpu::Main(argc, argv); }
