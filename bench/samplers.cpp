// samplers [REPEATS]: CPU milliseconds in which a sampler without --top-k chooses one of 262,144
// tokens, the best of REPEATS (default 9) choices. A line for each sampler, a column for each kind
// of row: peaked (Zipf with noise, as text has it) and normal with deviations of 3, 2 and 1 (nearly
// flat).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "kvant/random.h"
#include "kvant/sampler.h"

namespace {

constexpr int32_t kVocab = 262144;

double Normal(kvant::Xoshiro256& random) {
  const double a = static_cast<double>((random.Next() >> 11) + 1) * 0x1p-53;
  const double b = static_cast<double>(random.Next() >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(a)) * std::cos(2 * std::numbers::pi * b);
}

std::vector<float> NormalRow(double deviation) {
  kvant::Xoshiro256 random(7);
  std::vector<float> row(kVocab);
  for (float& logit : row) logit = static_cast<float>(deviation * Normal(random));
  return row;
}

std::vector<float> PeakedRow() {
  kvant::Xoshiro256 random(7);
  std::vector<float> row(kVocab);
  for (size_t i = 0; i < row.size(); ++i) {
    const double rank = static_cast<double>((i * 48271) % row.size()) + 1;
    row[i] = static_cast<float>(12 - 4 * std::log(rank) / std::log(10.0) + 0.5 * Normal(random));
  }
  return row;
}

double CpuMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Case {
  const char* name;
  void (*set)(kvant::SamplingOptions& options);
};
constexpr Case kCases[] = {
    {"temperature 1", [](kvant::SamplingOptions&) {}},
    {"temperature 0", [](kvant::SamplingOptions& o) { o.temperature = 0; }},
    {"top-p 0.95", [](kvant::SamplingOptions& o) { o.top_p = 0.95f; }},
    {"min-p 0.001", [](kvant::SamplingOptions& o) { o.min_p = 0.001f; }},
    {"typical 0.95", [](kvant::SamplingOptions& o) { o.typical = 0.95f; }},
    {"top-n-sigma 2", [](kvant::SamplingOptions& o) { o.top_n_sigma = 2; }},
    {"xtc 1, 0.0001",
     [](kvant::SamplingOptions& o) {
       o.xtc_probability = 1;
       o.xtc_threshold = 0.0001f;
     }},
    {"mirostat 1", [](kvant::SamplingOptions& o) { o.mirostat = 1; }},
    {"mirostat 2", [](kvant::SamplingOptions& o) { o.mirostat = 2; }},
    {"dynatemp 0.5", [](kvant::SamplingOptions& o) { o.dynatemp_range = 0.5f; }},
    {"adaptive-p 0.3",
     [](kvant::SamplingOptions& o) {
       o.samplers = {"adaptive_p"};
       o.adaptive_target = 0.3f;
     }},
};

double BestTime(const kvant::SamplingOptions& options, const std::vector<float>& row, int repeats) {
  kvant::Sampler sampler = kvant::Sampler::Create(options, kVocab).value();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const double begin = CpuMilliseconds();
    const kvant::TokenId token = sampler.Sample(row).value();
    best = std::min(best, CpuMilliseconds() - begin);
    sampler.Accept(token);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 9;
  const std::vector<float> rows[] = {PeakedRow(), NormalRow(3), NormalRow(2), NormalRow(1)};
  std::printf("%-16s %8s %8s %8s %8s\n", "", "peaked", "normal 3", "normal 2", "normal 1");
  for (const Case& entry : kCases) {
    kvant::SamplingOptions options;
    options.temperature = 1;
    options.top_k = 0;
    options.top_p = 1;
    options.min_p = 0;
    options.seed = 1;
    entry.set(options);
    std::printf("%-16s", entry.name);
    for (const std::vector<float>& row : rows)
      std::printf(" %8.2f", BestTime(options, row, repeats));
    std::printf("\n");
  }
  return 0;
}
