// The fields of a request for text, by a list with a row for each: names, type, limits, and what it
// sets. A field that is null is absent. One of a wrong type or beyond its limits is refused with
// its name; one that asks for what is not there, too. A field that nobody knows has no effect and
// is counted.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/json.h"
#include "kvant/chat.h"
#include "kvant/grammar.h"
#include "kvant/sampler.h"
#include "tools/serve/request/api_error.h"

namespace kvant::tools {

// JSON of clients, whose members have no order.
using RequestJson = formats::Json;

// More of them would only cost memory.
inline constexpr int64_t kTopLogProbsMax = 20;
inline constexpr int64_t kSamplesMax = 128;
inline constexpr size_t kStopTextsMax = 128;
inline constexpr size_t kPromptsMax = 2048;

// kNative: a completion by llama-server's own interface.
enum class TextUse : uint8_t { kChat, kCompletion, kNative };

// A bias of a token or of each token of a text.
struct FieldBias {
  std::optional<TokenId> token = {};
  std::string text = {};
  float bias = 0;
};

struct TextFields {
  std::string_view body = {};  // the request's text: members of a JSON schema keep its order
  SamplingOptions sampling = {};
  int64_t max_tokens = -1;
  std::vector<std::string> stop_texts = {};
  std::vector<FieldBias> biases = {};
  bool ignore_eos = false;
  int64_t samples = 1;  // n
  int64_t best_of = 0;  // 0: as many as `samples`
  bool stream = false;
  bool include_usage = false;
  bool usage_in_chunks = false;
  bool timings_in_chunks = false;
  std::optional<int32_t> log_probs = {};  // of each token, and of so many at its place
  bool wants_log_probs = false;           // chat's flag, beside its number of others
  bool after_sampling = false;            // they are those of the draw, as probabilities
  bool echo = false;
  bool reuses_prompt = true;
  int64_t slot = -1;        // that the text has; -1: any
  bool progress = false;    // of prompts is told, where the interface has that
  std::string suffix = {};  // completions: the text behind a gap, which they fill
  // Limits of a text that fills a gap, see GapLimits.
  int64_t indent = 0;
  double seconds_max = 0;
  std::optional<GrammarText> grammar = {};
  std::string grammar_field = {};  // where it comes from
  bool grammar_is_lazy = false;
  GrammarTriggers triggers = {};
  ChatRenderOptions render = {};  // chat
  std::string strict_model = {};  // the model that was asked for
};

// Takes the fields of a request, an object; `fields` has what holds where there is none. Counts
// those that nobody knows.
Refusal ReadFields(const RequestJson& body, TextUse use, TextFields& fields, int64_t* unknown);

// A prompt as it came.
struct PromptField {
  std::string text = {};
  std::vector<TokenId> ids = {};
  bool is_text = true;
};
// A field such as `prompt` of /v1/completions: a text, texts, ids, or lists of ids.
Refusal ReadPrompts(const RequestJson& body, const std::string& name, int32_t vocab_size,
                    std::vector<PromptField>* out);

// A list of ids within the vocabulary.
Refusal ReadIds(const RequestJson& value, const std::string& name, int32_t vocab_size,
                std::vector<TokenId>* out);

// A text; refused where it is absent or none.
Refusal ReadText(const RequestJson& body, std::string_view name, std::string* out);
// A flag, or what `out` is where it is absent.
Refusal ReadFlag(const RequestJson& body, std::string_view name, bool* out);

// A field has a value of another type or size than it is expected to have.
ApiError WrongType(const std::string& name, std::string_view expected, const RequestJson& found);
// `found` is null where there is none.
ApiError WrongMember(const std::string& name, std::string_view expected, const RequestJson* found);

// The member of this name, null where it is absent or null itself.
const RequestJson* Member(const RequestJson& object, std::string_view name);

}  // namespace kvant::tools
