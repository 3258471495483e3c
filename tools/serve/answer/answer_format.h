// Answers to requests for text in the form of one interface: whole, and as a stream of events.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/reasoning_text.h"
#include "kvant/text_request.h"
#include "tools/options/json.h"
#include "tools/serve/answer/serve_metrics.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

// A part of an answer that has a place of its own: thoughts, content, or a call of a tool.
struct AnswerBlock {
  enum class Kind : uint8_t { kReasoning, kContent, kCall };
  Kind kind;
  std::string text = {};     // of a call: its arguments
  std::string id = {};       // of a call
  std::string name = {};     // of a call
  bool is_complete = false;  // a call
};

// A text that has ended, or what there is of it.
struct SampleAnswer {
  size_t index = 0;
  std::string content = {};
  std::string reasoning = {};
  std::vector<AnswerBlock> blocks = {};       // in their order; with the texts of the two above
  bool has_tools = false;                     // that it may call
  std::vector<TokenLogProbs> log_probs = {};  // of the tokens whose text is in the two
  std::vector<TokenId> tokens = {};           // of the text; in a stream: of the last piece
  std::string finish_reason = {};  // "stop", "length" or "tool_calls"; "" while it goes on
  std::string stop_text = {};      // that has ended it; "": none has
  bool is_full = false;            // the context or the memory has ended it
  int64_t slot = 0;                // see slot_table.h
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  double prompt_seconds = 0;
  double completion_seconds = 0;
  int64_t drafted_tokens = 0;   // guessed by a draft
  int64_t accepted_tokens = 0;  // of these, right
  int64_t text_offset = 0;      // characters of the text so far, for lists of completions
  uint64_t seed = 0;
};

// How far a prompt is processed.
struct PromptProgress {
  int64_t done = 0;    // tokens, known ones included
  int64_t cached = 0;  // that were known
  double seconds = 0;
};

// The prompt that `echo` puts in front of a text.
struct EchoAnswer {
  std::string text = {};
  std::vector<TokenId> tokens = {};
  std::vector<TokenLogProbs> log_probs = {};  // of all tokens but the first; empty: none
};

using Events = std::vector<Json>;

// Whether an answer lists log-probabilities.
enum class ListUse : uint8_t { kNone, kWanted };

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The whole answer. `echo`: of each sample, or empty.
  virtual Json Whole(const std::vector<SampleAnswer>& samples, const std::vector<EchoAnswer>& echo,
                     ListUse list_use, const TokenCounts& usage) = 0;

  // The events of a stream: before the first text of a sample (`echo` is null without one), with
  // text (`log_probs` is null where nobody wants them), at the end of a sample and at that of all.
  virtual Events Begin(SampleAnswer& sample, const EchoAnswer* echo, ListUse list_use) = 0;
  virtual Events Piece(SampleAnswer& sample, AnswerPart part, std::string_view text,
                       const std::vector<TokenLogProbs>* log_probs) = 0;
  // Text that belongs to the call that is the last block: first an empty one, then pieces of its
  // arguments. Then comes its end.
  virtual Events CallPiece(SampleAnswer&, std::string_view, const std::vector<TokenLogProbs>*) {
    return {};
  }
  virtual Events CallEnd(SampleAnswer&) { return {}; }
  virtual Events End(SampleAnswer& sample) = 0;
  virtual Events UsageEvents(const TokenCounts& usage) = 0;
  // The events of a prompt under way, where the request asks for them.
  virtual Events Progress(SampleAnswer&, const PromptProgress&) { return {}; }
  virtual Events Failure(const ApiError& error) { return {ErrorJson(error)}; }

  // Whether the type of an event is its name as well.
  virtual bool names_events() const { return false; }
  // Whether [DONE] ends a stream.
  virtual bool ends_with_done() const { return !names_events(); }
};

// The bytes of events in a stream.
std::string TextOfEvents(const Events& events, const AnswerFormat& format);

// "timings" as llama-server has them.
Json TimingsJson(const SampleAnswer& sample);

// "prompt_progress" as llama-server has it.
Json ProgressJson(const SampleAnswer& sample, const PromptProgress& progress);

// {"token", "logprob", "bytes"}; -9999 stands for -infinity, which JSON has not.
Json LogProbJson(const Tokenizer& tokenizer, const TokenLogProb& one);
Json LogProbJson(float log_prob);

// How a text has ended, as OpenAI says it: "stop" or "length".
std::string FinishReasonOf(FinishReason reason);

// Adds text to an answer, and to its last block or a new one.
void AddTextTo(SampleAnswer& answer, AnswerPart part, std::string_view text);

// A random id: the prefix, and so many letters and digits.
std::string RandomId(std::string_view prefix, int length = 24);

// Seconds since 1970.
int64_t SecondsOfClock();

// The number of characters of a text in UTF-8.
int64_t CountCharacters(std::string_view text);

}  // namespace kvant::tools
