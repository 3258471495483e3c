// The options of `kvant bench`: models, tests, and the form of the result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kvant/model.h"
#include "kvant/session_options.h"
#include "tools/bench/bench_output.h"
#include "tools/bench/synthetic_model.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/settings_group.h"

namespace kvant::tools {

enum class BenchMode : uint8_t {
  kSpeed,           // tokens per second
  kMachine,         // the limits of the machine alone
  kCompareNoCache,  // a step with and without the KV cache
  kKvOperations,    // beams, reorder, fork, rewind, files
};

struct KvTypes {
  KvType k_type;
  KvType v_type;
};

struct BenchOptions {
  BenchMode mode = BenchMode::kSpeed;
  std::vector<std::string> models;
  std::vector<SyntheticModel> synthetic;
  ModelGroup loading;

  // Every combination of the values in these lists is measured. Drafts are measured in decode tests
  // of one sequence, beside the same tests without.
  std::vector<int64_t> prompts;
  std::vector<int64_t> generated;
  std::vector<std::pair<int64_t, int64_t>> pairs;  // prompt and generated tokens in one test
  std::vector<int64_t> depths;
  std::vector<int64_t> batches;
  std::vector<int64_t> beams;
  std::vector<int64_t> sources;  // lengths, of encoder-decoders
  std::vector<int64_t> drafts;   // guesses at once, by layers of the model; without: no draft
  std::vector<int64_t> threads;
  std::vector<int64_t> chunks;
  std::vector<KvTypes> kv_types;
  std::vector<int64_t> maps;  // 1: the file is mapped; 0: it is read
  SettingsGroup settings;     // of placement, states and offloading

  bool prompts_given = false;
  bool beams_given = false;

  int64_t repetitions = 5;
  bool no_kv_cache = false;
  bool no_bounds = false;
  bool progress = false;
  bool quiet = false;
  OutputForm output = OutputForm::kMarkdown;
  std::optional<OutputForm> error_output;  // the same rows on stderr

  // These options for a model: encoder-decoders have defaults of their own where nothing was asked
  // for. kInvalid for sources of a model that reads none, or longer ones than it reads.
  Result<BenchOptions> For(const Model& model) const;

  // The session options that all tests with these types, threads and chunk share.
  SessionOptions Session(const KvTypes& types, int64_t threads_now, int64_t chunk) const;
};

// Reads the command line. The exit code if there is nothing more to do.
std::optional<int> ParseBenchOptions(CommandLine& line, BenchOptions* options);

std::string LlamaKvTypeName(KvType type);  // llama-bench's: "f16", "q8_0" for q8

}  // namespace kvant::tools
