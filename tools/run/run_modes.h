// The options of `kvant run`, and its ways of generating beside one streamed text: beam search and
// batches.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/text/languages.h"
#include "kvant/beam_options.h"
#include "kvant/generator.h"
#include "kvant/prompt.h"
#include "tools/chat/chat_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/sampling_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/json.h"
#include "tools/run/run_session.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

struct BeamRunOptions {
  std::optional<int64_t> count;
  std::optional<float> length_penalty;
  std::optional<std::string> early_stopping;
  int64_t num_return = 1;
  int64_t groups = 1;
  float diversity_penalty = 0.0f;
  std::optional<std::string> scoring;
  float patience = 1.0f;
  std::optional<int64_t> min_tokens;
  std::optional<int64_t> no_repeat_ngram;
  bool sample = false;
  std::optional<int64_t> forced_bos;
  std::optional<int64_t> min_length;
  std::vector<std::string> forced_eos;  // numbers, see tools/options/number_list.h
  std::vector<std::string> suppress;
  std::vector<std::string> begin_suppress;
  std::vector<std::string> bad_words;  // such lists, separated by semicolons
  bool renormalize = false;
  BeamOptions model;                  // what the model's file asks for
  bool model_asks = false;            // it does ask
  bool has_encoder = false;           // the model reads a text and writes another one
  std::optional<FrameShape> reads;    // it reads these frames instead of a text
  std::vector<TokenId> first_tokens;  // what the file has behind the first token that is written
  std::optional<std::string> prefix;  // what the other text begins with
  std::optional<std::string> frames;  // a file of them
  LanguageNames languages;
  bool writes_text = false;  // one text is sampled or kept in a file: there is no search
  bool draws = false;        // some option of the samplers was given

  // Whether texts are searched instead of sampled, and with how many beams.
  bool on() const { return count.has_value() || ((model_asks || has_encoder) && !writes_text); }
  int64_t beams() const { return count.value_or(model.beams); }
};

struct BatchRunOptions {
  std::optional<std::string> prompts;
  int64_t samples = 1;
  int64_t parallel = 8;
};

// The options of a single text: files of saved text, context shift, draft.
struct ContinueRunOptions {
  std::optional<std::string> session;
  bool session_rewind = false;
  std::optional<std::string> prompt_cache;
  bool prompt_cache_all = false;
  bool prompt_cache_read_only = false;
  std::optional<int64_t> shift_keep;  // --context-shift keep=N
  std::optional<int64_t> keep;        // --keep N: of the prompt, without BOS
  std::optional<std::string> draft;
  int64_t draft_tokens = 8;

  // The file that the sequence is taken from, if any.
  const std::optional<std::string>& File() const {
    return session.has_value() ? session : prompt_cache;
  }
};

struct RunOptions {
  ModelGroup model;
  TextGroup prompt;
  SessionGroup session;
  SamplingGroup sampling;
  BeamRunOptions beams;
  BatchRunOptions batch;
  ContinueRunOptions continuation;
  ConversationGroup conversation;
  int64_t max_tokens = -1;
  std::vector<std::string> stop_texts;
  std::vector<std::string> reverse_prompts;  // stop texts that are shown
  bool chat = false;                         // the prompt is a message
  bool ignore_eos = false;
  bool no_model_defaults = false;
  bool echo = false;
  bool special = false;
  bool json = false;
  bool quiet = false;
  StatusUse status_use() const { return quiet ? StatusUse::kHidden : StatusUse::kShown; }

  std::vector<std::string> StopTexts() const;
  SamplingOptions Sampling() const;
  // The ids of the text as a prompt or, with --chat, as a message.
  Result<std::vector<TokenId>> PromptIds(const Model& opened,
                                         const std::optional<std::string>& text) const;
};

// kInvalid for options that a beam search does not look at, and for its own without one.
Status CheckBeamModes(const OptionList& list, const RunOptions& options);

// kInvalid where the model reads frames and there are none, or a text besides: what that is given
// by, "" if there is none.
Status CheckFrames(const RunOptions& options, const Positionals& positionals,
                   std::string_view besides);

void AddBeamOptions(OptionList& list, BeamRunOptions& options);
void AddBatchOptions(OptionList& list, BatchRunOptions& options);

// A line of --prompts: a prompt, or what is wrong with it.
struct PromptLine {
  std::optional<Json> id;  // as the line has it
  std::string text;
  std::vector<TokenId> tokens;
  std::string error;  // "" if it can be answered
};

// The keys that every line of the answer begins with: "prompt", its number from 0, and its id.
Json AnswerTo(size_t number, const PromptLine& line);

// The model of a run, which is opened once, and when its loading began.
struct RunModel {
  std::shared_ptr<const Model> model;
  std::chrono::steady_clock::time_point start;
};

// Each is the whole of the command after the model was opened; `finish_reason` tells whether it was
// interrupted. Batches fail where a line could not be answered, after all others were.
Status RunBeams(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
                ResultStream& out, FinishReason* finish_reason);
Status RunBeamBatch(const RunOptions& options, const RunModel& opened,
                    std::vector<PromptLine> prompts, ResultStream& out,
                    FinishReason* finish_reason);
Status RunBatch(const RunOptions& options, const RunModel& opened, ResultStream& out,
                FinishReason* finish_reason);

// For a model with an encoder: writes a text instead of a search where options ask for draws, a
// session or a stop text.
void TakeTextMode(const OptionList& list, RunOptions& options);

// The input of a model with an encoder, and the tokens that it writes first.
struct WrittenText {
  std::vector<TokenId> source;
  std::vector<float> frames;
  std::vector<TokenId> first;
};

// The tokens that the model writes first. The tokens of a --prefix stand behind the language.
Result<std::vector<TokenId>> FirstWritten(const RunOptions& options, const Model& model,
                                          const Translation& translation);
// `text`: nullopt where there are frames.
Result<WrittenText> ReadWritten(const RunOptions& options, const Model& model,
                                const std::optional<std::string>& text);
// Puts the language into the first tokens where frames are read: what is asked for, or the
// likeliest one where the file leaves it open. The sequence has its source and no tokens.
Status ChooseLanguage(const RunOptions& options, Runner& runner, SequenceId sequence,
                      std::vector<TokenId>& first);
// The processors that force and ban tokens in a text that begins with `first` tokens. max_tokens
// becomes the most tokens that follow; -1: as many as there is room for.
Result<BeamOptions> Processors(const RunOptions& options, const Model& model, size_t first,
                               int64_t* max_tokens);

// Turns the texts into tokens, which are sources where the model has an encoder. A line that does
// not fit into the context gets a line of JSON with the error, and an `error`. Returns the numbers
// of the other lines.
std::vector<size_t> CheckPrompts(const Model& model, const Translation& translation,
                                 int64_t context, std::vector<PromptLine>& prompts,
                                 ResultStream& out);

// kCorrupt if some could not be answered: how many of how many.
Status CheckAnswered(const std::string& path, std::span<const PromptLine> prompts);

}  // namespace kvant::tools
