// kvant bench: tokens per second of prefill and decode.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/model.h"
#include "kvant/runner.h"
#include "tools/bench/bench_bound.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/bench_report.h"
#include "tools/options/json.h"

namespace kvant::tools {

// A model that is measured, and what opening it took.
struct BenchModel {
  std::shared_ptr<const Model> model;
  std::string name;  // the path, or "synthetic 1b Q4_0"
  bool mapped = true;
  double load_seconds = 0;
};

// How the file of a model is read.
enum class MapUse : uint8_t { kRead, kMapped };

// Opens the model at a path, or makes the synthetic one. kOutOfMemory where it does not fit.
Result<BenchModel> OpenBenchModel(const BenchOptions& options, const std::string& path, MapUse map);
Result<BenchModel> MakeBenchModel(const BenchOptions& options, const SyntheticModel& synthetic,
                                  MapUse map);

// kOutOfMemory, with the bytes needed and free, unless the cache for this number of positions in
// all and the buffers fit into free memory.
Status CheckMemory(const Model& model, const SessionOptions& options, int64_t positions);

// Random tokens after the token that texts of the model begin with. Equal seeds give equal tokens.
std::vector<TokenId> RandomTokens(const Model& model, int64_t count, uint64_t seed);

// The input of an encoder, tokens or frames; one of both is empty.
struct SourceInput {
  std::vector<TokenId> tokens;
  std::vector<float> frames;
};
// A random input of `positions` positions.
SourceInput RandomSource(const Model& model, int64_t positions, uint64_t seed);

struct SpeedTimes {
  double seconds = 0;        // of the test
  double first_seconds = 0;  // until the logits of the prompt
  uint64_t bus_bytes = 0;    // to and from a device that attends
  int64_t passes = 0;        // of the model
  int64_t guessed = 0;       // tokens that a draft guessed, and those of them that were right
  int64_t right = 0;
};

// Sequences of random tokens and the tests that are run on them.
class SpeedRunner {
 public:
  // Makes room for tests of `options.sequences` sequences, each with `options.context` positions.
  // With an encoder-decoder, each sequence has a source of its own with `source` tokens.
  static Result<SpeedRunner> Create(std::shared_ptr<const Model> model,
                                    const SessionOptions& options, int64_t source);

  // Fills each sequence with `depth` tokens; later tests begin there.
  Status SetDepth(int64_t depth);

  using Times = SpeedTimes;
  // Goes back to the depth and runs the test from there. kInvalid if logits are no numbers.
  Result<Times> Run(const SpeedCase& test);

  const SessionOptions& options() const { return runner_->options(); }

 private:
  Status StepAll(int64_t count);
  Result<Times> RunDrafted(const SpeedCase& test);

  std::unique_ptr<Runner> runner_;
  std::vector<SequenceId> sequences_;
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<StepInput> inputs_;
  int64_t depth_ = 0;
};

// Seconds in which a source of test.source tokens is encoded; `number` makes it another one.
Result<double> RunEncoder(Runner& runner, const SpeedCase& test, uint64_t number);

// Measures n_gen steps of a beam search after a prompt of test.depth tokens (at least one), which a
// runner with a prefix cache has computed once. If test.source is above 0, a source is read first.
Result<SpeedTimes> RunBeams(Runner& runner, std::span<const TokenId> prompt, const SpeedCase& test);

// kvant bench MODEL: all tests of one model.
Status BenchSpeed(const BenchOptions& options, const BenchModel& model, BenchReport& report);

// The fields about model and session that rows of every kind have, as in llama-bench.
Json ModelFields(const BenchModel& model, const SessionOptions& options);

// The mean, and the deviation of a sample, which is 0 for one value.
double Mean(const std::vector<double>& values);
double StandardDeviation(const std::vector<double>& values);
double Median(std::vector<double> values);

}  // namespace kvant::tools
