#include "tools/bench/bench_options.h"

#include <fmt/format.h>

#include <array>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/kv_format_list.h"
#include "engine/limits.h"
#include "kvant/kv_type.h"
#include "tools/options/groups/draft_group.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/settings_group.h"
#include "tools/options/model_names.h"
#include "tools/options/number_list.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr const char* kBenchCommon[] = {"--n-prompt", "--n-gen",     "--prompt-gen",  "--n-depth",
                                        "--batch",    "--beams",     "--repetitions", "--synthetic",
                                        "--threads",  "--kv-type",   "--chunk",       "--mmap",
                                        "--output",   "--no-bounds", "--machine",     "--help"};

constexpr HelpText kBenchHelp = {
    "MODEL... | --synthetic SHAPE[:TYPE] [-p N] [-n N] [-d N] [OPTIONS]",
    "Measures how many tokens per second a model processes (prefill, -p) and generates (decode,\n"
    "-n), a row for each test, and what share of the machine's limits that is. Numbers may be\n"
    "lists and ranges: 512,1024 or 1-4 or 0-8192+4096 or 1-8*2. Rows have the form and the field\n"
    "names of llama-bench. tokens/s of a batch counts the tokens of all its sequences; all beams\n"
    "of a search count as one text. For encoder-decoders, a row of its own shows how fast a\n"
    "source is encoded, and decode tests have that source.",
    "  kvant bench model.gguf\n"
    "  kvant bench --synthetic 1b:Q4_K_M -t 1-2\n"
    "  kvant bench a.gguf b.gguf -p 512 -n 128 -d 0,8192 --kv-type f16,q8 -r 3\n"
    "  kvant bench model.gguf -p 0 -n 64 --batch 1-8*2 -o json | jq '.[].avg_ts'\n"
    "  kvant bench --synthetic opus-mt:Q8_0 --source-length 32,512 --beams 1,4,8\n"
    "  kvant bench --machine\n"
    "  kvant bench model.gguf --compare-no-cache\n"
    "  kvant bench model.gguf --kv-ops -d 512,8192\n",
    kBenchCommon,
};

// Tests of more tokens would take days.
constexpr int64_t kTokensMax = int64_t{1} << 24;

// The defaults for encoder-decoders.
constexpr int64_t kUsualSource = 512;
constexpr std::array<int64_t, 3> kUsualBeams = {1, 4, 8};

// The options as they are written.
struct Texts {
  std::vector<std::string> models, synthetic, prompts, generated, pairs, depths, batches, beams;
  std::vector<std::string> sources, drafts, threads, chunks, kv_types, k_types, v_types, maps;
  std::optional<std::string> output, error_output;
  bool machine = false;
  bool compare_no_cache = false;
  bool kv_operations = false;
};

void AddTestOptions(OptionList& list, Texts& texts, BenchOptions& options) {
  list.Group("Tests");
  list.Texts("-p,--n-prompt", &texts.prompts, "N", "Tokens of the prefill test; 0 drops it", "512");
  list.Texts("-n,--n-gen", &texts.generated, "N", "Tokens of the decode test; 0 drops it", "128");
  list.Texts("--prompt-gen", &texts.pairs, "P,N",
             "One test of a prompt of P tokens and N generated ones; may be repeated");
  list.Texts("-d,--n-depth", &texts.depths, "N",
             "Tokens that the sequence holds before a test begins", "0");
  list.Texts("--batch", &texts.batches, "N", "Sequences that are decoded together", "1");
  list.Texts("--beams", &texts.beams, "N", "Beams of the beam search in decode tests", "1");
  list.Texts("--source-length", &texts.sources, "N",
             "For encoder-decoders: tokens of the source; encoding it is a test of its own, and "
             "decode tests follow it",
             "512, or as many as it reads");
  list.Texts(
      "--draft", &texts.drafts, "mtp[:N]",
      "Decode tests of one sequence also with guesses, N at once (default: 3), by the layers "
      "of the model that predict further tokens; shows how many were right and what a pass "
      "with guesses costs, and no bounds");
  list.Values("--draft", {"mtp"});
  list.Integer("-r,--repetitions", &options.repetitions, {1, 10000}, "Runs of each test");
  list.Flag("--machine", &texts.machine,
            "Measure the machine alone: memory bandwidth and arithmetic");
  list.Flag("--compare-no-cache", &texts.compare_no_cache,
            "Compare the speed with and without the KV cache: of one token after each length of "
            "-d, and of -n tokens in a row");
  list.Flag("--kv-ops", &texts.kv_operations,
            "Measure operations of the KV cache at the depths of -d: beams, reorder, fork, rewind, "
            "files");
}

void AddOtherOptions(OptionList& list, Texts& texts, BenchOptions& options) {
  list.Group("Model");
  list.Texts("-m,--model", &texts.models, "FILE", "GGUF file, in place of the argument MODEL");
  list.Texts(
      "--synthetic", &texts.synthetic, "SHAPE[:TYPE]",
      "A random model in memory instead of a file: 1b, 3b, 8b (Llama), qwen3-4b, qwen3vl-4b, "
      "gemma3-4b, muse-glimmer-9b (12 of 52 layers), qwen35-9b, qwen35-9b-mtp, deepseek-lite, "
      "deepseek3-cut, deepseek32-cut (4 of 61 layers), ling-3-tiny, "
      "laguna-xs-6b (8 of 40 layers), qwen4exp-cut (12 of 48 layers, 64 of 512 experts), "
      "gpt-oss-20b, moe-4b or moe-30b-a3b (Qwen 3 with experts), "
      "opus-mt or flan-t5-base; in any type of 'kvant quantize'");
  options.loading.AddPre(list);
  options.loading.AddLoading(list);
  list.Group("Speed and memory");
  SettingsGroup::AddList(list, "threads", &texts.threads,
                         fmt::format("{}, the performance cores available", DefaultThreadCount()));
  list.Texts("--kv-type", &texts.kv_types, "TYPE", "Type of the KV cache: " + KvTypeNames(), "f16");
  std::vector<std::string> kv_types;
  for (const KvType type : AllKvTypes()) kv_types.emplace_back(KvTypeName(type));
  for (const char* name : {"--kv-type", "--cache-type-k", "--cache-type-v"}) {
    list.Values(name, kv_types);
  }
  for (const char* name : {"", "--model"}) list.Values(name, ModelNames());
  SettingsGroup::AddList(list, "k_type", &texts.k_types);
  SettingsGroup::AddList(list, "v_type", &texts.v_types);
  for (const SessionTopic topic :
       {SessionTopic::kPlacement, SessionTopic::kStates, SessionTopic::kOffload}) {
    options.settings.Add(list, topic);
  }
  SettingsGroup::AddList(list, "chunk", &texts.chunks, std::to_string(kDefaultChunk));
  list.Flag("--no-kv-cache", &options.no_kv_cache,
            "Compute the whole sequence anew for every token");
  list.Group("Output");
  list.Text("-o,--output", &texts.output, "md|csv|json|jsonl|sql", "Form of the result", "md");
  list.Text("--output-err", &texts.error_output, "md|csv|json|jsonl|sql",
            "Print the result on stderr, too, in this form");
  list.Flag("--no-bounds", &options.no_bounds, "Do not measure the machine's limits");
  list.Flag("--progress", &options.progress,
            "Show lines of progress even where stderr is no terminal");
  list.Flag("-q,--quiet", &options.quiet, "Show no progress on the terminal");
  list.Texts("--mmap", &texts.maps, "0|1", "Map the file (1) or read it (0); 0,1 measures both",
             "1");
  AddIdleOptions(list, IdleIn::kBench);
}

Result<std::vector<KvType>> ParseKvTypes(const char* option,
                                         const std::vector<std::string>& texts) {
  std::vector<KvType> types;
  for (const std::string& text : texts) {
    for (const std::string& name : SplitList(text)) {
      const auto type = ParseKvType(name);
      if (!type.ok()) {
        return MakeError(ErrorCode::kInvalid, "{}: {}", option, type.error().message);
      }
      types.push_back(*type);
    }
  }
  return types;
}

// --kv-type gives pairs of equal types; -ctk and -ctv, where given, every combination.
Result<std::vector<KvTypes>> CombineKvTypes(const Texts& texts) {
  KVANT_ASSIGN(auto both, ParseKvTypes("--kv-type", texts.kv_types));
  KVANT_ASSIGN(const auto keys, ParseKvTypes("--cache-type-k", texts.k_types));
  KVANT_ASSIGN(const auto values, ParseKvTypes("--cache-type-v", texts.v_types));
  if (both.empty()) both = {KvType::kF16};
  std::vector<KvTypes> types;
  for (const KvType k : keys.empty() ? both : keys) {
    for (const KvType v : values.empty() ? both : values) {
      if (keys.empty() && values.empty() && k != v) continue;
      types.push_back({k, v});
    }
  }
  return types;
}

// The numbers of guesses at once, of texts like "mtp:2".
Result<std::vector<int64_t>> ParseDrafts(const std::vector<std::string>& texts) {
  std::vector<int64_t> guesses;
  for (const std::string& text : texts) {
    for (const std::string& part : SplitList(text)) {
      DraftGroup draft;
      draft.model = part;
      if (!draft.predicts()) {
        return MakeError(ErrorCode::kInvalid,
                         "--draft: expected mtp or mtp:N, the drafts that can be measured, found "
                         "'{}'",
                         Visible(part));
      }
      guesses.push_back(draft.TokensAtOnce());
    }
  }
  return guesses;
}

using Fallback = std::vector<std::string>;

Status ParseTests(Texts& texts, BenchOptions* options) {
  const bool speed = options->mode == BenchMode::kSpeed;
  const bool operations = options->mode == BenchMode::kKvOperations;
  const auto numbers = [](const char* option, std::vector<std::string>& given, Fallback fallback,
                          Bounds<int64_t> bounds) {
    return ParseNumbers(option, given.empty() ? fallback : given, bounds);
  };
  const Bounds<int64_t> tokens{0, kTokensMax};
  const Bounds<int64_t> sequences{1, kSequencesMax};
  KVANT_ASSIGN(options->prompts, numbers("--n-prompt", texts.prompts, {"512"}, tokens));
  KVANT_ASSIGN(options->generated, numbers("--n-gen", texts.generated,
                                           {speed        ? "128"
                                            : operations ? "16"
                                                         : "100"},
                                           tokens));
  KVANT_ASSIGN(options->pairs, ParsePairs("--prompt-gen", texts.pairs, {1, kTokensMax}));
  KVANT_ASSIGN(options->depths, numbers("--n-depth", texts.depths,
                                        {speed        ? "0"
                                         : operations ? "512,8192"
                                                      : "64-512*2"},
                                        tokens));
  KVANT_ASSIGN(options->batches, numbers("--batch", texts.batches, {"1"}, sequences));
  KVANT_ASSIGN(options->beams,
               numbers("--beams", texts.beams, {operations ? "1-8*2" : "1"}, sequences));
  KVANT_ASSIGN(options->sources, ParseNumbers("--source-length", texts.sources, {1, kTokensMax}));
  KVANT_ASSIGN(options->drafts, ParseDrafts(texts.drafts));
  if (!options->drafts.empty()) options->no_bounds = true;
  options->prompts_given = !texts.prompts.empty();
  options->beams_given = !texts.beams.empty();
  const std::string all_threads = std::to_string(DefaultThreadCount());
  KVANT_ASSIGN(options->threads,
               numbers("--threads", texts.threads, {all_threads}, {1, kThreadsMax}));
  KVANT_ASSIGN(options->chunks,
               numbers("--chunk", texts.chunks, {std::to_string(kDefaultChunk)}, {1, kTokensMax}));
  KVANT_ASSIGN(options->kv_types, CombineKvTypes(texts));
  KVANT_ASSIGN(options->maps,
               numbers("--mmap", texts.maps, {options->loading.no_mmap ? "0" : "1"}, {0, 1}));
  return {};
}

Status ParseOutput(const Texts& texts, BenchOptions* options) {
  if (texts.output) {
    KVANT_ASSIGN(options->output, ParseOutputForm("--output", *texts.output));
  }
  if (texts.error_output) {
    KVANT_ASSIGN(options->error_output, ParseOutputForm("--output-err", *texts.error_output));
  }
  return {};
}

Status ParseModels(const CommandLine& line, const Texts& texts, BenchOptions* options) {
  options->models = texts.models;
  options->models.insert(options->models.end(), line.positionals().begin(),
                         line.positionals().end());
  for (std::string& model : options->models) {
    if (model.empty()) return MakeError(ErrorCode::kInvalid, "the name of the model is empty");
  }
  for (const std::string& text : texts.synthetic) {
    for (const std::string& part : SplitList(text)) {
      const auto model = ParseSynthetic(part);
      if (!model.ok()) {
        return MakeError(ErrorCode::kInvalid, "--synthetic: {}", model.error().message);
      }
      options->synthetic.push_back(*model);
    }
  }
  const bool any = !options->models.empty() || !options->synthetic.empty();
  if (options->mode == BenchMode::kMachine) {
    if (any) return MakeError(ErrorCode::kInvalid, "--machine measures no model: leave it away");
    return {};
  }
  if (!any) {
    return MakeError(ErrorCode::kInvalid,
                     "no model given: name a GGUF file, as in 'kvant bench model.gguf', or "
                     "--synthetic 1b");
  }
  for (std::string& model : options->models) {
    KVANT_ASSIGN(model, FindModel(model));
  }
  return {};
}

Status CheckDrafts(const BenchOptions& options) {
  if (options.drafts.empty()) return {};
  if (options.mode != BenchMode::kSpeed) {
    return MakeError(ErrorCode::kInvalid,
                     "--draft: expected decode tests, found another measurement");
  }
  if (options.no_kv_cache) {
    return MakeError(ErrorCode::kInvalid, "--draft: expected a KV cache, found --no-kv-cache");
  }
  return {};
}

Status CheckTests(const BenchOptions& options) {
  KVANT_TRY(options.settings.Options());
  const auto positive = [](const std::vector<int64_t>& numbers) {
    for (const int64_t number : numbers) {
      if (number > 0) return true;
    }
    return false;
  };
  if (options.mode == BenchMode::kSpeed && options.pairs.empty() && !positive(options.prompts) &&
      !positive(options.generated)) {
    return MakeError(ErrorCode::kInvalid, "-p 0 and -n 0 leave no test to run");
  }
  const bool lengths =
      options.mode == BenchMode::kKvOperations || options.mode == BenchMode::kCompareNoCache;
  if (lengths && !(positive(options.depths) && positive(options.generated))) {
    return MakeError(ErrorCode::kInvalid, "-d and -n: expected at least 1, found 0");
  }
  return CheckDrafts(options);
}

}  // namespace

std::string LlamaKvTypeName(KvType type) {
  const cpu::KvTraits& traits = cpu::KvTraitsOf(type);
  return std::string(traits.other_name.empty() ? traits.name : traits.other_name);
}

Result<BenchOptions> BenchOptions::For(const Model& model) const {
  BenchOptions out = *this;
  if (!model.has_encoder()) {
    if (sources.empty()) return out;
    return MakeError(ErrorCode::kInvalid,
                     "--source-length: expected an encoder-decoder, found a model that reads no "
                     "source");
  }
  KVANT_TRY(model.CheckDecoder());
  const int64_t most = model.source_length();
  const bool frames = model.frame_shape().has_value();
  for (const int64_t length : sources) {
    if (frames && length != most) {
      return MakeError(ErrorCode::kInvalid,
                       "--source-length: expected the {} positions that the model's frames become, "
                       "found {}",
                       most, length);
    }
    if (length <= most) continue;
    return MakeError(ErrorCode::kInvalid,
                     "--source-length: expected at most the {} tokens that the model reads, found "
                     "{}",
                     most, length);
  }
  if (sources.empty()) out.sources = {frames ? most : std::min(kUsualSource, most)};
  if (!prompts_given) out.prompts.clear();
  if (!beams_given) out.beams.assign(kUsualBeams.begin(), kUsualBeams.end());
  return out;
}

SessionOptions BenchOptions::Session(const KvTypes& types, int64_t threads_now,
                                     int64_t chunk) const {
  SessionOptions session = settings.Options().value();  // CheckTests has tried it
  session.k_type = types.k_type;
  session.v_type = types.v_type;
  session.threads = static_cast<int>(threads_now);
  session.chunk = chunk;
  session.kv_cache = !no_kv_cache;
  session.cancel = &CancelFlag();
  // A wrong guess goes back over the states of recurrent layers.
  for (const int64_t guesses : drafts) {
    session.state_log = std::max(session.state_log, guesses + 1);
  }
  return session;
}

std::optional<int> ParseBenchOptions(CommandLine& line, BenchOptions* options) {
  Texts texts;
  OptionList list;
  AddTestOptions(list, texts, *options);
  AddOtherOptions(list, texts, *options);
  if (const auto code = line.Parse(list, kBenchHelp)) return code;
  if (texts.machine + texts.compare_no_cache + texts.kv_operations > 1) {
    return line.UsageError("--machine, --compare-no-cache and --kv-ops exclude each other");
  }
  if (texts.machine) options->mode = BenchMode::kMachine;
  if (texts.compare_no_cache) options->mode = BenchMode::kCompareNoCache;
  if (texts.kv_operations) options->mode = BenchMode::kKvOperations;
  for (const Status& status : {ParseModels(line, texts, options), ParseTests(texts, options),
                               ParseOutput(texts, options), CheckTests(*options)}) {
    if (status.ok()) continue;
    if (status.error().code != ErrorCode::kInvalid) return Fail(status.error());
    return line.UsageError(status.error().message);
  }
  return std::nullopt;
}

}  // namespace kvant::tools
