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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/beam_log_probs.h"
#include "kvant/beam_options.h"
#include "kvant/draft.h"
#include "kvant/result.h"
#include "kvant/sampler.h"
#include "kvant/scheduler.h"
#include "kvant/token_text.h"

namespace kvant {

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
  Draft* draft = nullptr;
  int64_t draft_tokens = 8;
  // Changes the logits of the token after `text`, all tokens so far, before one is drawn. An error
  // ends the text. May be empty.
  std::function<Status(std::span<const TokenId> text, std::span<float> logits)> on_logits = {};
  // Tokens are forced, banned and penalized before one is sampled, as these options say; how many
  // beams there are and how they are scored does not matter. Null: nothing is. Of the prompt,
  // `processors_prompt` tokens count as one there and the others as generated; -1: all do.
  const BeamOptions* processors = nullptr;
  int64_t processors_prompt = -1;
};

enum class FinishReason : uint8_t {
  kStop,       // an end-of-generation token
  kStopText,   // a stop text
  kLength,     // max_tokens
  kContext,    // the context is full
  kMemory,     // the KV cache's memory is full
  kCancelled,  // by the cancel flag or by the caller's text function
};

// "stop", "stop_text", "length", "context", "memory", "cancelled".
const char* FinishReasonName(FinishReason reason);

struct Generation {
  std::vector<TokenId> ids;  // generated, the end token excluded
  std::string text;          // all pieces together
  FinishReason finish_reason = FinishReason::kCancelled;
  int64_t prefill_tokens = 0;
  double prefill_seconds = 0;
  int64_t decode_tokens = 0;  // tokens appended after the prompt, without wrong guesses
  int64_t decode_passes = 0;
  int64_t drafted_tokens = 0;   // guessed
  int64_t accepted_tokens = 0;  // of these, right
  double decode_seconds = 0;    // sampling and appending, the caller's text function excluded
};

// Receives each piece of text; false ends the generation.
using TextFunction = std::function<bool(std::string_view piece)>;

class TextRequest final : public Request {
 public:
  struct Setup {
    const Tokenizer* tokenizer;
    std::span<const TokenId> prompt;
    const GenerateOptions* options;
    int64_t held = 0;               // tokens of the prompt that the sequence has already
    Sampler* sampler = nullptr;     // null: Prepare makes one from the two fields below
    SamplingOptions sampling = {};  // only where `sampler` is null
    int32_t vocab_size = 0;         // only where `sampler` is null
    TextFunction on_text = {};
    // Called when the text has ended, well or cancelled; returning false ends all requests.
    std::function<bool(TextRequest& request)> on_end = {};
    const void* family = nullptr;  // texts with the same source and prompt
    // For encoder-decoders, in a sequence of the request's own: the source, as tokens or as frames;
    // one of the two is empty. The prompt is then the beginning of the generated text.
    std::span<const TokenId> source = {};
    std::span<const float> frames = {};
  };
  // Everything that the setup refers to must outlive the request.
  explicit TextRequest(Setup setup) : setup_(std::move(setup)) {}

  const Generation& generation() const { return out_; }
  Generation TakeGeneration() { return std::move(out_); }
  uint64_t seed() const { return sampler_ == nullptr ? 0 : sampler_->seed(); }

 protected:
  std::span<const TokenId> prompt() const override { return setup_.prompt; }
  const void* family() const override { return setup_.family; }
  std::span<const TokenId> source() const override { return setup_.source; }
  std::span<const float> frames() const override { return setup_.frames; }
  Status Prepare() override;
  void PromptDone(int64_t tokens) override;
  void Begin(SequenceId sequence) override;
  Status AddInputs(SequenceHost& host, std::vector<StepInput>& inputs) override;
  Status TakeRow(int64_t token, std::span<const float> logits) override;
  Status Advance(SequenceHost& host) override;
  bool done() const override { return done_; }
  void Spend(double seconds) override;
  bool SaveMemory() override;
  bool Preempt() override;
  std::span<const TokenId> recompute() const override;
  Status EndWithoutMemory(const Status& error) override;
  void Release(SequenceHost& host, std::optional<SequenceId> kept) override;
  Status End() override;

 private:
  const GenerateOptions& options() const { return *setup_.options; }
  void AcceptPrompt(int64_t tokens);
  Status Guess(SequenceHost& host);
  Status Choose(std::span<const float> logits);
  Result<std::span<const float>> Processed(std::span<const float> logits);
  Status TakeStep(SequenceHost& host);
  Status GoOn(SequenceHost& host);
  bool Take(TokenId id);
  bool Finish(FinishReason reason);
  bool Show(std::string_view piece);

  Setup setup_;
  std::optional<Sampler> own_sampler_;
  Sampler* sampler_ = nullptr;             // null before Prepare
  std::optional<BeamLogProbs> processed_;  // once a token was chosen, where there are processors
  std::vector<TokenId> read_;              // by these: the text so far
  std::optional<TokenText> text_;
  int64_t accepted_ = 0;  // tokens of the prompt that the sampler knows
  SequenceId sequence_ = -1;
  bool begun_ = false;    // tokens may have been chosen
  bool shifted_ = false;  // the sequence no longer holds all tokens
  bool done_ = false;
  std::vector<TokenId> all_;     // prompt and generated
  std::vector<TokenId> guess_;   // the last token and those that may follow
  bool guess_again_ = false;     // the step is tried again with the tokens in guess_
  std::vector<TokenId> chosen_;  // from the logits of the last step
  std::vector<float> row_;       // what on_logits changes, [vocab]
  bool right_ = true;            // all guesses so far are what was chosen
  Status chosen_status_;
  bool in_step_ = false;  // between AddInputs and Advance
  int64_t before_ = 0;    // tokens of the sequence before the step
  Generation out_;
};

}  // namespace kvant
