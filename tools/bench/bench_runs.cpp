// Running the tests of kvant bench: opening models, filling sequences, taking the time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/available_memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/run/memory_plan.h"
#include "kvant/beam_generator.h"
#include "kvant/draft.h"
#include "kvant/generator.h"
#include "kvant/random.h"
#include "kvant/sampler.h"
#include "tools/bench/bench_speed.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/model_facts.h"
#include "tools/options/stopwatch.h"

namespace kvant::tools {
namespace {

using Clock = std::chrono::steady_clock;

Status CheckLogits(std::span<const float> logits) {
  const bool finite =
      std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
  if (finite && !logits.empty()) return {};
  return MakeError(ErrorCode::kCorrupt, "the model's logits are not finite: nothing was measured");
}

Result<BenchModel> Open(const BenchOptions& options, const std::string& path,
                        const std::string& name, MapUse map) {
  BenchModel out;
  const auto start = Clock::now();
  ModelOptions loading = options.loading.Options();
  loading.predictors = !options.drafts.empty();
  loading.access = map == MapUse::kMapped ? FileAccess::kMap : FileAccess::kRead;
  KVANT_ASSIGN(out.model, Model::Open(path, loading));
  out.load_seconds = SecondsSince(start);
  out.name = name;
  out.mapped = map == MapUse::kMapped;
  return out;
}

std::vector<TokenId> Draw(int64_t count, int32_t vocab, uint64_t seed) {
  Xoshiro256 random(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& id : tokens) {
    id = static_cast<TokenId>(random.Below(static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

}  // namespace

Result<BenchModel> OpenBenchModel(const BenchOptions& options, const std::string& path,
                                  MapUse map) {
  return Open(options, path, path, map);
}

Result<BenchModel> MakeBenchModel(const BenchOptions& options, const SyntheticModel& synthetic,
                                  MapUse map) {
  const uint64_t bytes = SyntheticBytes(synthetic);
  const uint64_t available = AvailableMemory();
  if (bytes > available) {
    return MakeError(ErrorCode::kOutOfMemory, "{}: {} of weights do not fit: {} of memory are free",
                     synthetic.Name(), SizeText(bytes), SizeText(available));
  }
  KVANT_ASSIGN(const MemoryFile file, MemoryFile::Create("kvant-synthetic"));
  KVANT_TRY(WriteSynthetic(synthetic, file.path(), DefaultThreadCount()));
  return Open(options, file.path(), synthetic.Name(), map);
}

SourceInput RandomSource(const Model& model, int64_t positions, uint64_t seed) {
  SourceInput input;
  const auto shape = model.frame_shape();
  if (!shape.has_value()) {
    input.tokens = Draw(positions, model.source_vocab_size(), seed);
    return input;
  }
  Xoshiro256 random(seed);
  input.frames.resize(static_cast<size_t>(shape->bins * shape->frames));
  constexpr uint64_t kLevels = 1 << 20;
  for (float& number : input.frames) {
    number = static_cast<float>(random.Below(kLevels)) / static_cast<float>(kLevels);
  }
  return input;
}

std::vector<TokenId> RandomTokens(const Model& model, int64_t count, uint64_t seed) {
  std::vector<TokenId> tokens = Draw(count, model.vocab_size(), seed);
  if (model.decoder_start().has_value()) tokens[0] = *model.decoder_start();
  const SpecialTokens& special = model.tokenizer().special();
  if (special.add_bos && special.bos.has_value()) tokens[0] = *special.bos;
  return tokens;
}

Status CheckMemory(const Model& model, const SessionOptions& options, int64_t positions) {
  SessionOptions one = options;
  one.sequences = 1;
  KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(model, one));
  const double position_bytes =
      KvBytes(plan, options.context) / static_cast<double>(options.context);
  const uint64_t buffers = plan.activations + plan.logits;
  const auto kv = static_cast<uint64_t>(position_bytes * static_cast<double>(positions));
  const uint64_t available = AvailableMemory();
  if (kv + buffers <= available) return {};
  const auto room = static_cast<double>(available - std::min(available, buffers));
  const auto fitting = static_cast<int64_t>(position_bytes > 0 ? room / position_bytes : 0);
  return MakeError(ErrorCode::kOutOfMemory,
                   "{} tokens do not fit: their KV cache takes {} and buffers {}, but {} of "
                   "memory are free, enough for {}",
                   positions, SizeText(kv), SizeText(buffers), SizeText(available), fitting);
}

Result<SpeedRunner> SpeedRunner::Create(std::shared_ptr<const Model> model,
                                        const SessionOptions& options, int64_t source) {
  KVANT_TRY(CheckMemory(*model, options, options.context * options.sequences));
  SpeedRunner out;
  KVANT_ASSIGN(out.runner_, Runner::Create(model, options));
  NotePlacement(*out.runner_);
  for (int64_t i = 0; i < options.sequences; ++i) {
    const SourceInput input =
        source > 0 ? RandomSource(*model, source, static_cast<uint64_t>(i + 1)) : SourceInput();
    KVANT_ASSIGN(const SequenceId sequence,
                 !input.frames.empty()   ? out.runner_->NewSequenceOfFrames(input.frames)
                 : !input.tokens.empty() ? out.runner_->NewSequenceOf(input.tokens)
                                         : out.runner_->NewSequence());
    out.sequences_.push_back(sequence);
    out.tokens_.push_back(RandomTokens(*model, options.context, static_cast<uint64_t>(i + 1)));
  }
  out.inputs_.resize(out.sequences_.size());
  return out;
}

// The next `count` tokens of every sequence.
Status SpeedRunner::StepAll(int64_t count) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const auto begin = static_cast<size_t>(runner_->length(sequences_[i]));
    inputs_[i] = {sequences_[i], std::span(tokens_[i]).subspan(begin, static_cast<size_t>(count))};
  }
  return runner_->Step(inputs_);
}

Status SpeedRunner::SetDepth(int64_t depth) {
  depth_ = depth;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const int64_t length = runner_->length(sequences_[i]);
    if (length > depth) KVANT_TRY(runner_->Rewind(sequences_[i], depth));
    if (length >= depth) continue;
    const auto missing =
        std::span(tokens_[i])
            .subspan(static_cast<size_t>(length), static_cast<size_t>(depth - length));
    KVANT_TRY(runner_->Append(sequences_[i], missing));
  }
  return {};
}

namespace {

uint64_t BusBytes(const Runner& runner) {
  const RunnerStats stats = runner.stats();
  return stats.bytes_to_device + stats.bytes_to_host;
}

}  // namespace

// The likeliest tokens behind the depth, of which the first pass has no guesses.
Result<SpeedRunner::Times> SpeedRunner::RunDrafted(const SpeedCase& test) {
  const Model& model = runner_->model();
  SamplingOptions greedy;
  greedy.temperature = 0;
  KVANT_ASSIGN(Sampler sampler, Sampler::Create(greedy, model.vocab_size(), &model.tokenizer()));
  GenerateOptions generate;
  generate.max_tokens = test.n_gen;
  generate.ignore_eos = true;
  generate.cancel = runner_->options().cancel;
  generate.draft = std::make_shared<PredictedDraft>();
  generate.draft_tokens = test.guesses;
  const auto prompt = std::span(tokens_.front()).subspan(static_cast<size_t>(depth_), 1);
  KVANT_ASSIGN(const Generation text, Generate(*runner_, sequences_.front(), model.tokenizer(),
                                               sampler, prompt, generate, {}));
  if (text.finish_reason == FinishReason::kCancelled) {
    return MakeError(ErrorCode::kCancelled, "cancelled");
  }
  return Times{.seconds = text.prefill_seconds + text.decode_seconds,
               .passes = text.decode_passes + 1,
               .guessed = text.drafted_tokens,
               .right = text.accepted_tokens};
}

Result<SpeedRunner::Times> SpeedRunner::Run(const SpeedCase& test) {
  for (const SequenceId sequence : sequences_) KVANT_TRY(runner_->Rewind(sequence, depth_));
  if (test.guesses > 0) return RunDrafted(test);
  Times times;
  const uint64_t bus_before = BusBytes(*runner_);
  const auto start = Clock::now();
  if (test.n_prompt > 0) {
    KVANT_TRY(StepAll(test.n_prompt));
    times.first_seconds = SecondsSince(start);
  }
  for (int64_t i = 0; i < test.n_gen; ++i) KVANT_TRY(StepAll(1));
  times.seconds = SecondsSince(start);
  times.passes = test.n_gen + (test.n_prompt > 0 ? 1 : 0);
  times.bus_bytes = BusBytes(*runner_) - bus_before;
  for (const SequenceId sequence : sequences_) KVANT_TRY(CheckLogits(runner_->logits(sequence)));
  return times;
}

Result<double> RunEncoder(Runner& runner, const SpeedCase& test, uint64_t number) {
  const SourceInput input = RandomSource(runner.model(), test.source, number);
  SourceOptions options;
  // Without a cache nothing would be encoded yet.
  if (!runner.options().kv_cache) {
    options.rows = [](std::span<const float> /*rows*/) { return Status(); };
  }
  const auto start = Clock::now();
  KVANT_ASSIGN(const SourceId source, input.frames.empty()
                                          ? runner.Encode(input.tokens, options)
                                          : runner.EncodeFrames(input.frames, options));
  const double seconds = SecondsSince(start);
  KVANT_TRY(runner.FreeSource(source));
  return seconds;
}

Result<SpeedTimes> RunBeams(Runner& runner, std::span<const TokenId> prompt,
                            const SpeedCase& test) {
  BeamGenerateOptions generate;
  generate.search.beams = static_cast<int32_t>(test.beams);
  generate.search.max_new_tokens = test.n_gen + 1;
  generate.cancel = runner.options().cancel;
  // From the first choice of tokens to the last: n_gen steps of the model, with the search and the
  // reordering of each.
  Clock::time_point first;
  Clock::time_point last;
  uint64_t bus_before = 0;
  int64_t choices = 0;
  generate.on_step = [&](size_t, const BeamSearch&) {
    last = Clock::now();
    if (choices++ == 0) {
      first = last;
      bus_before = BusBytes(runner);
    }
    return BeamStep::kGoOn;
  };
  const size_t length = static_cast<size_t>(std::max<int64_t>(test.depth, 1));
  const std::vector<TokenId> tokens(prompt.begin(),
                                    prompt.begin() + static_cast<std::ptrdiff_t>(length));
  const SourceInput source =
      test.source > 0 ? RandomSource(runner.model(), test.source, 1) : SourceInput();
  if (!source.tokens.empty()) generate.sources = {&source.tokens, 1};
  if (!source.frames.empty()) generate.frames = {&source.frames, 1};
  KVANT_ASSIGN(const auto found, GenerateBeams(runner, {&tokens, 1}, generate));
  if (found.front().cancelled) return MakeError(ErrorCode::kCancelled, "cancelled");
  return SpeedTimes{.seconds = std::chrono::duration<double>(last - first).count(),
                    .bus_bytes = BusBytes(runner) - bus_before};
}

}  // namespace kvant::tools
