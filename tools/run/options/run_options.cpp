#include "tools/run/options/run_options.h"

#include "base/result.h"
#include "engine/limits.h"
#include "kvant/prompt.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/option_values.h"

namespace kvant::tools {
namespace {

void AddContinuation(OptionList& list, ContinueRunOptions& options) {
  list.Group("Long texts and speed");
  list.Text("--session", &options.session, "FILE",
            "Continue the text saved in this file, and save the whole text there at the end");
  list.Flag("--session-rewind", &options.session_rewind,
            "With --session: where prompt and saved text differ, keep the beginning that both "
            "share and drop the rest of the saved text");
  list.Text("--prompt-cache", &options.prompt_cache, "FILE",
            "Keep the KV cache of the prompt in this file, for prompts with the same beginning");
  list.Flag("--prompt-cache-all", &options.prompt_cache_all,
            "Keep the generated text in the --prompt-cache, too");
  list.Flag("--prompt-cache-ro", &options.prompt_cache_read_only,
            "Leave the --prompt-cache as it is");
  list.Flag("--context-shift", &options.context_shift,
            "When the context is full, forget the earlier half of what follows the tokens of "
            "--keep, instead of ending the text");
  list.Integer(
      "--keep", &options.keep, {-1, kContextMax},
      "With --context-shift, which it brings along: keep BOS and the first N tokens of the "
      "prompt behind it; -1 keeps the whole prompt",
      "0");
  options.draft.Add(list);
}

void AddBatchOptions(OptionList& list, BatchRunOptions& options) {
  list.Group("Batches");
  list.Text("--prompts", &options.prompts, "FILE",
            "Answer the lines of a file, each {\"prompt\": TEXT}; - is standard input. Each text "
            "is printed when it ends, as a line of JSON: prompt (its number from 0), sample, text, "
            "ids, finish_reason, seed; with --beams: prompt, finish_reason, beams. An \"id\" in a "
            "line is repeated. A line that cannot be answered gets an \"error\"; the others are "
            "answered, and the exit code is 1");
  list.Integer("--samples", &options.samples, {1, kSequencesMax},
               "Texts to generate for each prompt; each has the seed of the one before plus 1");
  list.Integer(
      "--parallel", &options.parallel, {1, kSequencesMax},
      "Most texts to generate at the same time; all samples of a prompt are generated together");
}

}  // namespace

void RunOptions::Add(OptionList& list) {
  prompt.Add(list, "Prompt", "prompt");
  list.Flag("--chat", &chat,
            "Take the prompt as a message: the template of the model's file makes a conversation "
            "of it, and the text is the answer");
  conversation.Add(list, "Prompt, with --chat", ThoughtsUse::kShown);
  tools.Add(list,
            "The prompt is a message, as with --chat. The answer's content is printed without "
            "thoughts, and each call behind it as a line of JSON");
  list.Group("Generation");
  list.Integer("-n,--predict,--n-predict", &max_tokens, {-1, kContextMax},
               "Most tokens to generate; -1 goes on until an end token or a full context");
  list.Texts("--stop,-r,--reverse-prompt", &stop_texts, "TEXT",
             "End before this text, which is not shown; may be repeated");
  list.Flag("--ignore-eos", &ignore_eos, "Never choose an end token");
  list.Flag("--no-model-defaults", &no_model_defaults,
            "Ignore the settings for sampling and beam search in the model's file");
  list.Group("Output");
  list.Flag("--echo", &echo, "Show the prompt before the text");
  list.Flag("--special", &special, "Show control tokens");
  list.Flag("--json", &json,
            "Print one line of JSON at the end: text, ids, finish_reason, timings ...");
  list.Flag("-q,--quiet", &quiet,
            "Show no progress and no speeds on the terminal, and no note about a session");
  sampling.Add(list);
  grammar.Add(list);
  AddContinuation(list, continuation);
  search.Add(list);
  translation.AddPrefix(list);
  frames.Add(list);
  translation.AddLanguages(list);
  search.AddSample(list);
  search.rules.Add(list);
  AddBatchOptions(list, batch);
  model.AddPath(list);
  model.AddPre(list);
  model.AddLoading(list);
  session.Add(list, SessionUse::kTexts, "the length the model was trained for");
  AddIdleOptions(list);
}

// The likeliest tokens of models with an encoder, unless an option says otherwise.
SamplingOptions RunOptions::Sampling() const {
  SamplingOptions out = sampling.Options();
  if (translation.has_encoder && !translation.draws) out.temperature = 0.0f;
  return out;
}

std::vector<std::string> RunOptions::StopTexts() const {
  std::vector<std::string> texts;
  for (const std::string& text : stop_texts) {
    texts.push_back(prompt.escape ? Unescape(text) : text);
  }
  return texts;
}

Result<std::vector<TokenId>> RunOptions::PromptIds(const Model& opened,
                                                   const std::optional<std::string>& text) const {
  if (!chat) return PromptTokens(opened.tokenizer(), text.value_or(""));
  return conversation.Prompt(opened, text.value_or(""));
}

}  // namespace kvant::tools
