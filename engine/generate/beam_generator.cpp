// Runs beam searches on a model: each search has a sequence for every live beam.
#include "kvant/beam_generator.h"
#include "base/counted.h"

#include <algorithm>
#include <deque>

#include "base/result.h"
#include "engine/generate/logit_check.h"
#include "kvant/scheduler.h"
#include "kvant/text_request.h"

namespace kvant {
namespace {

// A search and the sequences of its live beams, by rank.
class BeamRequest final : public Request {
 public:
  BeamRequest(BeamSearch search, size_t number, TextInput input, BeamStepFunction on_step,
              const std::atomic<bool>* cancel)
      : search_(std::move(search)),
        number_(number),
        input_(std::move(input)),
        on_step_(std::move(on_step)),
        cancel_(cancel) {}

  // Nothing, if the search has not begun.
  std::optional<BeamGeneration> Found(bool all_cancelled) const {
    if (!begun_) return std::nullopt;
    BeamGeneration generation;
    generation.hypotheses = search_.Results();
    generation.steps = steps_;
    generation.cancelled = cancelled_ || (all_cancelled && !search_.done());
    for (size_t row = 0;
         generation.cancelled && generation.hypotheses.empty() && row < search_.tokens().size();
         ++row) {
      generation.hypotheses.push_back(search_.Live(row));
    }
    return generation;
  }

 protected:
  int64_t sequences() const override { return search_.options().beams; }
  std::span<const TokenId> prompt() const override { return input_.prompt; }
  std::span<const TokenId> source() const override { return input_.source; }
  std::span<const float> frames() const override { return input_.frames; }
  bool done() const override { return cancelled_ || search_.done(); }

  Status Prepare() override {
    begun_ = true;
    return {};
  }

  void Begin(SequenceId sequence) override {
    beams_.clear();
    beams_.push_back(sequence);
  }

  Status AddInputs(SequenceHost& /*host*/, std::vector<StepInput>& inputs) override {
    const std::span<const TokenId> tokens = search_.tokens();
    for (size_t beam = 0; beam < beams_.size(); ++beam) {
      inputs.push_back({beams_[beam], tokens.subspan(beam, 1)});
    }
    return {};
  }

  // Makes one step of the search from the logits of its beams, then gives sequences to the beams
  // that go on.
  Status Advance(SequenceHost& host) override {
    logits_.clear();
    const std::span<const TokenId> tokens = search_.tokens();
    for (size_t beam = 0; beam < beams_.size(); ++beam) {
      logits_.push_back(host.logits(beams_[beam]));
      const TokenId token = tokens.empty() ? input_.prompt.back() : tokens[beam];
      KVANT_TRY(CheckLogitsAreNumbers(logits_.back(),
                                      {host.name(), host.length(beams_[beam]) - 1, token}));
    }
    KVANT_TRY(search_.Step(logits_));
    ++steps_;
    KVANT_TRY(search_.done() ? Shrink(host, 0) : Follow(host));
    const BeamStep next = on_step_ ? on_step_(number_, search_) : BeamStep::kGoOn;
    if (next == BeamStep::kEndAll || (cancel_ != nullptr && cancel_->load())) {
      return MakeError(ErrorCode::kCancelled, "cancelled");
    }
    cancelled_ = next == BeamStep::kEndRequest && !search_.done();
    return {};
  }

  void Release(SequenceHost& host, std::optional<SequenceId> /*kept*/) override {
    (void)Shrink(host, 0);  // sequences of its own, so they exist
  }

 private:
  // Gives every beam its parent's sequence: permutes the sequences, and forks the sequence of a
  // parent that several beams continue.
  Status Follow(SequenceHost& host) {
    const std::span<const int32_t> parents = search_.parents();
    while (beams_.size() < parents.size()) {
      KVANT_ASSIGN(const SequenceId fork, host.Fork(beams_.front()));
      beams_.push_back(fork);
    }
    parents_.assign(parents.begin(), parents.end());
    parents_.resize(beams_.size(), 0);
    KVANT_TRY(host.Reorder(beams_, parents_));
    return Shrink(host, parents.size());
  }

  Status Shrink(SequenceHost& host, size_t count) {
    while (beams_.size() > count) {
      KVANT_TRY(host.FreeSequence(beams_.back()));
      beams_.pop_back();
    }
    return {};
  }

  BeamSearch search_;
  size_t number_;  // of the prompt
  TextInput input_;
  BeamStepFunction on_step_;
  const std::atomic<bool>* cancel_;
  std::vector<SequenceId> beams_;
  std::vector<int> parents_;
  std::vector<std::span<const float>> logits_;
  int64_t steps_ = 0;
  bool begun_ = false;
  bool cancelled_ = false;
};

// Starts a search for at most as many tokens as the context has room for; the last one needs none.
Result<BeamSearch> StartSearch(const Runner& runner, std::span<const TokenId> prompt,
                               BeamOptions options, const LogitOptions& logits) {
  const int64_t most = runner.options().context + 1;
  options.max_length = std::min(options.max_length, most);
  options.min_length = std::min(options.min_length, most);
  options.max_new_tokens = std::min(options.max_new_tokens, most - std::ssize(prompt));
  options.min_new_tokens = std::min(
      options.min_new_tokens, options.max_length > 0 ? options.max_length : options.max_new_tokens);
  KVANT_ASSIGN(BeamSearch search, BeamSearch::Create(options, runner.model().vocab_size(), logits,
                                                     &runner.model().tokenizer()));
  KVANT_TRY(search.Start(prompt));
  return search;
}

// Frees the fork of a search that was cancelled before it began.
class BeginningFork {
 public:
  explicit BeginningFork(Runner& runner) : runner_(runner) {}
  ~BeginningFork() {
    if (runner_.Has(sequence)) (void)runner_.FreeSequence(sequence);
  }
  BeginningFork(const BeginningFork&) = delete;
  BeginningFork& operator=(const BeginningFork&) = delete;

  SequenceId sequence = -1;

 private:
  Runner& runner_;
};

// Where the prompt's beginning is known, the search gets a fork of the sequence that holds it.
Result<Service> ServiceFor(Runner& runner, std::span<const TokenId> prompt,
                           const BeamGenerateOptions& options) {
  Service service;
  if (!options.beginning.has_value()) return service;
  const std::span<const TokenId> held = runner.tokens(*options.beginning);
  if (held.size() >= prompt.size() || !std::equal(held.begin(), held.end(), prompt.begin())) {
    return MakeError(ErrorCode::kInvalid,
                     "sequence {}: expected the beginning of the prompt of {}, found {} of another",
                     *options.beginning, Counted(prompt.size(), "token"),
                     Counted(held.size(), "token"));
  }
  KVANT_ASSIGN(service.sequence, runner.Fork(*options.beginning));
  service.done = std::ssize(held);
  return service;
}

}  // namespace

Result<std::vector<BeamGeneration>> GenerateBeams(Runner& runner,
                                                  std::span<const std::vector<TokenId>> prompts,
                                                  const BeamGenerateOptions& options) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (std::ssize(prompts[i]) <= runner.options().context) continue;
    return MakeError(ErrorCode::kContextFull, "prompt {} has {}, but the context has room for {}",
                     i, Counted(prompts[i].size(), "token"), runner.options().context);
  }
  if (options.beginning.has_value() && prompts.size() != 1) {
    return MakeError(ErrorCode::kInvalid, "a beginning: expected one prompt, found {}",
                     prompts.size());
  }
  const size_t sources = options.sources.size() + options.frames.size();
  const bool one_kind = options.sources.empty() || options.frames.empty();
  if (!one_kind || (sources > 0 && sources != prompts.size())) {
    return MakeError(
        ErrorCode::kInvalid,
        "sources: expected one for each of {} prompts, all of tokens or all of frames, "
        "found {} and {}",
        prompts.size(), options.sources.size(), options.frames.size());
  }
  BeginningFork fork(runner);
  std::deque<BeamRequest> requests;
  // Prompts are processed in the same steps as the beams of other requests.
  Scheduler scheduler(
      runner, {.prompt_slice = INT64_MAX, .requests_max = std::max<size_t>(options.parallel, 1)});
  for (size_t i = 0; i < prompts.size(); ++i) {
    BeamOptions search_options = options.search;
    if (search_options.scoring == BeamScoring::kCt2 && !options.sources.empty()) {
      search_options.ct2_prompt_in_result = true;
    }
    KVANT_ASSIGN(BeamSearch search,
                 StartSearch(runner, prompts[i], search_options, options.logits));
    KVANT_ASSIGN(const Service service, ServiceFor(runner, prompts[i], options));
    fork.sequence = service.sequence.value_or(-1);
    TextInput input = {prompts[i]};
    if (!options.sources.empty()) input.source = options.sources[i];
    if (!options.frames.empty()) input.frames = options.frames[i];
    scheduler.Submit(requests.emplace_back(std::move(search), i, std::move(input), options.on_step,
                                           options.cancel),
                     service);
  }
  const Status status = scheduler.Drain();
  const bool cancelled = status.Is(ErrorCode::kCancelled);
  if (!status.ok() && !cancelled) return status.error();
  std::vector<BeamGeneration> out;
  for (const BeamRequest& request : requests) {
    if (auto generation = request.Found(cancelled)) out.push_back(std::move(*generation));
  }
  return out;
}

}  // namespace kvant
