// One text as it is generated: the state machine behind `kvant run`, batches and drafts.
//
// The request samples a token from the logits of the last one, turns tokens into pieces of complete
// UTF-8, watches for the end of the text, and asks for the chosen token to be processed next,
// followed by the guesses of a draft. The scheduler (include/kvant/scheduler.h) does the rest. A
// text that must wait for memory keeps its sampler, so that it goes on with the same tokens.
//
// Text reaches the caller as pieces the moment they are final: bytes of an unfinished character and
// beginnings of stop texts are held back (stop_text.h, Utf8Stream).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/beam_options.h"
#include "kvant/draft.h"
#include "kvant/logit_stage.h"
#include "kvant/result.h"
#include "kvant/sampler.h"
#include "kvant/scheduler.h"
#include "kvant/token_text.h"

namespace kvant {

// The input that a text continues. Texts that share one object are samples of one prompt: where
// they stand next to each other in a queue, it is processed once, and its sequence forked.
struct TextInput {
  // May have ids of rows (Runner::AddRows), which the caller frees after the request has ended.
  std::vector<TokenId> prompt;
  // For encoder-decoders, in a sequence of the request's own: the source, as tokens or as frames;
  // one of the two is empty. The prompt is then the beginning of the generated text.
  std::vector<TokenId> source = {};
  std::vector<float> frames = {};
  std::vector<AdapterUse> adapters = {};  // that the text uses, see Runner::SetAdapters
};

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until an end token or a full context
  std::vector<std::string> stop_texts;
  bool ignore_eos = false;  // end tokens are never chosen
  bool special = false;     // show the text of control tokens
  bool echo = false;        // the prompt's text comes first
  // If > 0, the prompt is processed in pieces of this many tokens, and on_prefill is called after
  // each with the number of tokens done.
  int64_t prefill_slice = 0;
  std::function<void(int64_t done)> on_prefill;
  const std::atomic<bool>* cancel = nullptr;  // once set, the text ends as it is, with kCancelled
  // The sequence holds the beginning of the prompt already, all but its last token at most.
  bool continues = false;
  // The behaviour when the context is full. nullopt: the text ends. Otherwise this many tokens of
  // the beginning stay, and the later half of the others. A context of one token is never shifted.
  std::optional<int64_t> shift_keep;
  // Guesses the next tokens, which are checked together with each token: at most draft_tokens, and
  // at most kSharedRowsMax - 1. Null: there is no draft.
  std::shared_ptr<Draft> draft = nullptr;
  int64_t draft_tokens = 8;
  // Log-probabilities of each token of the text are kept, and of this many likeliest tokens at its
  // place; 0: of the token alone. nullopt: none are.
  std::optional<int32_t> log_probs = {};
  // kModel: those of the model, before anything changes its logits. kSampler: those with which the
  // token was drawn from what all stages and samplers had left, which may be fewer tokens than
  // asked for (Sampler::Chances).
  enum class LogProbSource : uint8_t { kModel, kSampler };
  LogProbSource log_probs_from = LogProbSource::kModel;
  // Log-probabilities are kept for each token of the prompt, too, but for the first, which nothing
  // predicts. The whole prompt is computed then, whatever is known of it. In a family of samples
  // the first one has them.
  std::optional<int32_t> prompt_log_probs = {};
  LogitOptions logits = {};
  // Tokens are forced, banned and penalized before one is sampled, as these options say; how many
  // beams there are and how they are scored does not matter. nullopt: nothing is. Of the prompt,
  // `processors_prompt` tokens count as one there and for all stages of logits, and the others as
  // generated; -1: all do.
  std::optional<BeamOptions> processors = {};
  int64_t processors_prompt = -1;
};

enum class FinishReason : uint8_t {
  kStop,       // an end-of-generation token
  kStopText,   // a stop text
  kLength,     // max_tokens
  kContext,    // the context is full
  kMemory,     // the KV cache's memory is full
  kCancelled,  // by the cancel flag, Request::Cancel or the caller's text function
  kDeadline,   // the time that Service::seconds_max allowed is over
  kNoToken,    // a stage of logits has left no token (LogitStage::ends_text)
};

// "stop", "stop_text", "length", "context", "memory", "cancelled", "deadline", "no_token".
const char* FinishReasonName(FinishReason reason);

struct TokenLogProb {
  TokenId id = 0;
  double log_prob = 0;  // natural logarithm
};

// A token of a text and the likeliest tokens at its place, the likeliest first, lower ids first
// among equals.
struct TokenLogProbs {
  TokenLogProb chosen;
  std::vector<TokenLogProb> top;
};

struct Generation {
  std::vector<TokenId> ids;  // generated, the end token excluded
  std::string text;          // all pieces together
  FinishReason finish_reason = FinishReason::kCancelled;
  int64_t prefill_tokens = 0;
  double prefill_seconds = 0;
  int64_t decode_tokens = 0;  // tokens appended after the prompt, without wrong guesses
  int64_t decode_passes = 0;
  int64_t drafts = 0;           // passes with guesses of the draft
  int64_t drafted_tokens = 0;   // guessed
  int64_t accepted_tokens = 0;  // of these, right
  // Computed with the token before them, since a grammar left no choice, or hardly any.
  int64_t forced_tokens = 0;
  double decode_seconds = 0;  // sampling and appending, the caller's text function excluded
  std::vector<TokenLogProbs> log_probs;  // of each of `ids`, if GenerateOptions asks for them
  std::optional<TokenLogProbs> end_log_probs = {};   // of the end token, if there is one
  std::vector<TokenLogProbs> prompt_log_probs = {};  // of prompt[1] and all behind it
};

// Receives each piece of text; false ends the generation.
using TextFunction = std::function<bool(std::string_view piece)>;

class TextRequest final : public Request {
 public:
  // All that a text is made from. The request owns it; what the functions refer to must live until
  // the request has ended.
  struct Setup {
    std::shared_ptr<const Tokenizer> tokenizer;
    std::shared_ptr<const TextInput> input;
    GenerateOptions options = {};
    int64_t held = 0;  // tokens of the prompt that the sequence has already
    // nullopt: Prepare makes one from the two fields below, so that a text that waits needs little
    // memory.
    std::optional<Sampler> sampler = {};
    SamplingOptions sampling = {};
    int32_t vocab_size = 0;
    // Called with each token of the text, before the piece that it completes; `log_probs` is null
    // unless the options ask for them. May be empty.
    std::function<void(TokenId id, const TokenLogProbs* log_probs)> on_token = {};
    TextFunction on_text = {};
    // Called when the text has ended, well or cancelled; returning false ends all requests. May be
    // empty.
    std::function<bool(TextRequest& request)> on_end = {};
    // Called in its place when the text has ended with an error. May be empty.
    std::function<void(const Error& error)> on_failure = {};
  };
  explicit TextRequest(Setup setup) : setup_(std::move(setup)) {}

  const Generation& generation() const { return out_; }
  Generation TakeGeneration() { return std::move(out_); }
  // The sampler, which knows all tokens of the text, without the stages of this request. There is
  // one after Prepare.
  Sampler TakeSampler();
  uint64_t seed() const { return setup_.sampler.has_value() ? setup_.sampler->seed() : 0; }

 protected:
  std::span<const TokenId> prompt() const override { return setup_.input->prompt; }
  const void* family() const override { return setup_.input.get(); }
  std::span<const TokenId> source() const override { return setup_.input->source; }
  std::span<const float> frames() const override { return setup_.input->frames; }
  std::span<const AdapterUse> adapters() const override { return setup_.input->adapters; }
  Status Prepare() override;
  bool wants_prompt_rows() const override {
    return setup_.options.prompt_log_probs.has_value() && setup_.held == 0 && !begun_;
  }
  Status TakePromptRow(int64_t token, std::span<const float> logits) override;
  void PromptDone(int64_t tokens) override;
  void Begin(SequenceId sequence) override;
  Status AddInputs(SequenceHost& host, std::vector<StepInput>& inputs) override;
  Status TakeRow(int64_t token, std::span<const float> logits) override;
  bool chooses_apart() const override;
  void ChooseApart(const SequenceHost& host) override;
  Status Advance(SequenceHost& host) override;
  bool done() const override { return done_; }
  void Spend(double seconds) override;
  bool SaveMemory() override;
  bool Preempt() override;
  std::span<const TokenId> recompute() const override;
  Status EndWithoutMemory(const Status& error) override;
  Status EndAtDeadline(const Status& error) override;
  void Release(SequenceHost& host, std::optional<SequenceId> kept) override;
  Status End() override;

 private:
  const GenerateOptions& options() const { return setup_.options; }
  void AcceptPrompt(int64_t tokens);
  Status Guess(SequenceHost& host, Guesses which);
  Status AddStages();
  int64_t given() const;
  Status Choose(std::span<const float> logits, int64_t position, TokenId token);
  LogitText Text();
  static TokenLogProbs LogProbsOf(TokenId id, std::span<const float> logits, int32_t top);
  TokenLogProbs LogProbsOfDraw(TokenId id, int32_t top);
  Status TakeStep(SequenceHost& host);
  Status GoOn(SequenceHost& host);
  bool Take(size_t i);
  bool Finish(FinishReason reason);
  bool Show(std::string_view piece);

  Setup setup_;
  std::optional<TokenText> text_;  // nullopt before Prepare
  int64_t accepted_ = 0;           // tokens of the prompt that the sampler knows
  SequenceId sequence_ = -1;
  std::string_view host_;  // SequenceHost::name
  bool begun_ = false;     // tokens may have been chosen
  bool shifted_ = false;   // the sequence no longer holds all tokens
  bool done_ = false;
  bool reads_tokens_ = false;     // some stage does
  std::vector<TokenId> all_;      // prompt and generated
  std::vector<TokenId> guess_;    // the last token and those that may follow
  bool guess_is_forced_ = false;  // by a stage of logits, rather than guessed by the draft
  bool guess_again_ = false;      // the step is tried again with the tokens in guess_
  std::vector<TokenId> chosen_;   // from the logits of the last step
  std::vector<TokenLogProbs> chosen_log_probs_;  // of these, if they are asked for
  bool no_token_ = false;                        // behind these
  bool right_ = true;                            // all guesses so far are what was chosen
  Status chosen_status_;
  bool chose_apart_ = false;  // the token after this step
  bool in_step_ = false;      // between AddInputs and Advance
  int64_t before_ = 0;        // tokens of the sequence before the step
  Generation out_;
};

}  // namespace kvant
