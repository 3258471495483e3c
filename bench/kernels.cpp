// Kernel benchmark: every problem of a text file, and every encoder, on every instruction set of
// this machine. A matrix kernel is first checked against the double-precision reference, then
// timed.
//
//   kvant_bench_kernels [--problems=FILE] [Google Benchmark's own flags]
//
// GB/s counts the bytes of the weights; MAC/cycle divides by core cycles, at the clock that a chain
// of dependent operations shows at start-up.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>

#include "cpu/peaks.h"
#include "tests/cpu/matmul_problem.h"

namespace kvant::cpu {
namespace {

struct ProblemLine {
  const quant::FormatTraits* format = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t tokens = 0;
};

// Reads "q4_k rows=8192 cols=2048 tokens=1"; false when something is wrong or missing.
bool ParseProblem(const std::string& line, ProblemLine& problem) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  problem.format = quant::FindFormat(word);
  while (words >> word) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return false;
    const std::string key = word.substr(0, equals);
    const int64_t value = std::atoll(word.c_str() + equals + 1);
    if (key == "rows") {
      problem.rows = value;
    } else if (key == "cols") {
      problem.cols = value;
    } else if (key == "tokens") {
      problem.tokens = value;
    } else {
      return false;
    }
  }
  return problem.format != nullptr && problem.rows > 0 && problem.cols > 0 &&
         problem.cols % problem.format->block_values == 0 && problem.tokens > 0;
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

void RunProblem(benchmark::State& state, const KernelTable& kernels, const ProblemLine& line,
                double cycles_per_second) {
  const MatMulProblem problem(kernels, *line.format, line.rows, line.cols, line.tokens);
  const std::string failure = CheckProblem(problem);
  if (!failure.empty()) {
    state.SkipWithError(failure.c_str());
    return;
  }
  std::vector<float> out(static_cast<size_t>(line.rows * line.tokens));
  const MatMulTask task = problem.Task(out.data());
  for ([[maybe_unused]] auto _ : state) {
    problem.kernel().run(task);
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  const double weights = static_cast<double>(line.rows * line.cols);
  state.counters["GB/s"] = benchmark::Counter(
      runs * static_cast<double>(line.rows * line.format->row_bytes(line.cols)) * 1e-9,
      benchmark::Counter::kIsRate);
  state.counters["MAC/cycle"] =
      benchmark::Counter(runs * weights * static_cast<double>(line.tokens) / cycles_per_second,
                         benchmark::Counter::kIsRate);
}

enum class Weights { kNone, kImportance };

// Encoding of 64 rows of 2048 values, which stay in the cache.
void RunEncode(benchmark::State& state, const KernelTable& kernels,
               const quant::FormatTraits& format, Weights weights, double cycles_per_second) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kCols = 2048;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::lognormal_distribution<float> log_normal(0.0f, 1.5f);
  std::vector<float> values(kRows * kCols);
  std::vector<float> importance(kCols);
  for (float& value : values) value = normal(random);
  for (float& weight : importance) weight = log_normal(random);
  std::vector<std::byte> blocks(static_cast<size_t>(kRows * format.row_bytes(kCols)));
  const EncodeTask task{
      &format, values.data(), weights == Weights::kNone ? nullptr : importance.data(),
      kRows,   kCols,         blocks.data()};
  const EncodeFunction encode = kernels.encode[static_cast<size_t>(FormatIndex(format))];
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
      benchmark::RegisterBenchmark(name.c_str(), RunEncode, *kernels.value(), format,
                                   Weights::kNone, cycles_per_second);
      if (!format.quantized()) continue;
      benchmark::RegisterBenchmark((name + " weighted").c_str(), RunEncode, *kernels.value(),
                                   format, Weights::kImportance, cycles_per_second);
    }
  }
}

// Takes --problems=FILE out of the arguments.
std::string TakeProblemsPath(int& argc, char** argv) {
  constexpr std::string_view kFlag = "--problems=";
  std::string path = KVANT_SOURCE_DIR "/bench/problems/matmul.txt";
  char** kept = std::remove_if(argv + 1, argv + argc, [&](const char* argument) {
    if (!std::string_view(argument).starts_with(kFlag)) return false;
    path = argument + kFlag.size();
    return true;
  });
  argc = static_cast<int>(kept - argv);
  return path;
}

int Main(int argc, char** argv) {
  const std::string path = TakeProblemsPath(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::ifstream file(path);
  if (!file) {
    fmt::print(stderr, "{}: cannot be read\n", path);
    return 1;
  }
  const double cycles_per_second = MeasureCyclesPerSecond();
  fmt::print(stderr, "{:.2f} GHz\n", cycles_per_second * 1e-9);
  int line_number = 0;
  for (std::string text; std::getline(file, text);) {
    ++line_number;
    if (text.empty() || text[0] == '#') continue;
    ProblemLine line;
    if (!ParseProblem(text, line)) {
      fmt::print(stderr, "{}:{}: expected 'format rows=N cols=N tokens=N', found '{}'\n", path,
                 line_number, text);
      return 1;
    }
    for (const IsaReport& isa : ReportIsas()) {
      const Result<const KernelTable*> kernels = ChooseKernels(isa.name);
      if (!kernels.ok()) continue;
      const std::string name = fmt::format("{}/{}", isa.name, text);
      benchmark::RegisterBenchmark(name.c_str(), RunProblem, *kernels.value(), line,
                                   cycles_per_second);
    }
  }
  RegisterEncoders(cycles_per_second);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace kvant::cpu

int main(int argc, char** argv) { return kvant::cpu::Main(argc, argv); }
