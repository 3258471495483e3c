#include "tools/run/options/run_checks.h"

#include <initializer_list>
#include <string_view>

#include "base/result.h"
#include "tools/options/frames_file.h"

namespace kvant::tools {
namespace {

constexpr const char* kHasEncoder = "a model that has an encoder";
constexpr const char* kReadsFrames = "a model that reads frames";

// A rule about options where `holds`. kExcludes: they do not go together with `other`. kNeeds: they
// have no effect, since `other` is absent.
struct Rule {
  enum class Kind : uint8_t { kExcludes, kNeeds };

  bool holds;
  Kind kind;
  const char* other;
  std::initializer_list<const char*> options;
};
constexpr auto kExcludes = Rule::Kind::kExcludes;
constexpr auto kNeeds = Rule::Kind::kNeeds;

// The first rule that is broken is the error.
Status CheckRules(const OptionList& list, std::initializer_list<Rule> rules) {
  for (const Rule& rule : rules) {
    if (!rule.holds) continue;
    KVANT_TRY(rule.kind == kExcludes ? list.Exclude(rule.options, rule.other)
                                     : list.Need(rule.options, rule.other));
  }
  return {};
}

bool HasPrompt(const RunOptions& options, const Positionals& positionals) {
  return options.prompt.text.has_value() || options.prompt.file.has_value() ||
         positionals.stdin_text;
}

// Batches and searches do less than one streamed text.
Status CheckManyTexts(const OptionList& list, const RunOptions& options,
                      const Positionals& positionals) {
  const bool batch = options.batch.prompts.has_value();
  const char* const mode = batch                             ? "--prompts"
                           : options.translation.has_encoder ? kHasEncoder
                                                             : "--beams";
  KVANT_TRY(list.Exclude(
      {"--session", "--session-rewind", "--prompt-cache", "--context-shift", "--keep", "--draft"},
      mode));
  if (batch && HasPrompt(options, positionals)) {
    return MakeError(ErrorCode::kInvalid, "a prompt: not possible together with --prompts");
  }
  if (!batch) return {};
  return list.Exclude({"--echo", "--chat", "--no-kv-cache"}, "--prompts");
}

// A model that reads frames needs them, and reads no text besides.
Status CheckFrames(const RunOptions& options, const Positionals& positionals) {
  const FramesOptions& frames = options.frames;
  const std::string_view besides = options.batch.prompts.has_value() ? "--prompts"
                                   : HasPrompt(options, positionals) ? "prompt"
                                                                     : "";
  if (!frames.reads.has_value() || (frames.file.has_value() && besides.empty())) return {};
  return MakeError(ErrorCode::kInvalid, "{}: the model reads {}: expected --frames FILE.npy{}{}",
                   positionals.model, FramesText(*frames.reads), besides.empty() ? "" : ", and no ",
                   besides);
}

Status CheckChat(const OptionList& list, const RunOptions& options) {
  if (options.conversation.no_template) KVANT_TRY(ConversationGroup::Check(list));
  return CheckRules(
      list, {{options.chat, kExcludes, "--chat", {"--session", "--prompt-cache"}},
             {!options.chat,
              kNeeds,
              "--chat",
              {"--system-prompt", "--system-prompt-file", "--chat-template", "--no-chat-template",
               "--chat-template-kwargs", "--reasoning", "--reasoning-budget"}}});
}

// An answer with calls is content and lines of calls, and nothing else.
Status CheckCalls(const OptionList& list, const RunOptions& options) {
  KVANT_TRY(options.tools.Check());
  if (!options.tools.file.has_value()) return {};
  if (options.searches()) {
    return MakeError(ErrorCode::kInvalid, "--tools: not possible together with a beam search");
  }
  return list.Exclude({"--prompts", "--json", "--echo", "--special", "--keep", "--no-kv-cache",
                       "--grammar", "--grammar-file", "--regex", "--choice", "--choices",
                       "--json-schema", "--json-schema-file", "--json-object"},
                      "--tools");
}

// Options of other models, and options of a search where there is none.
Status CheckModel(const OptionList& list, const RunOptions& options) {
  const bool frames = options.frames.reads.has_value();
  const bool encoder = options.translation.has_encoder;
  const bool search = options.searches();
  return CheckRules(
      list,
      {{frames, kExcludes, kReadsFrames, {"--target-lang"}},
       {!frames, kNeeds, kReadsFrames, {"--frames"}},
       {encoder, kExcludes, kHasEncoder, {"--chat"}},
       {!encoder, kNeeds, kHasEncoder, {"--prefix", "--source-lang", "--target-lang"}},
       {!search,
        kNeeds,
        "--beams",
        {"--length-penalty", "--early-stopping", "--num-return", "--beam-groups", "--diversity",
         "--beam-scoring", "--patience", "--beam-sample"}},
       {!search && !options.translation.writes_text,
        kNeeds,
        "--beams",
        {"--no-repeat-ngram", "--bad-words-ids", "--min-length", "--min-tokens", "--forced-bos-id",
         "--forced-eos-id", "--suppress-ids", "--begin-suppress-ids", "--renormalize"}}});
}

// Options that a search does not look at.
Status CheckSearch(const OptionList& list, const RunOptions& options) {
  KVANT_TRY(list.Exclude({"--stop"}, "--beams"));
  KVANT_TRY(SamplingGroup::CheckBeams(list));
  KVANT_TRY(CheckRules(list, {{options.ignore_eos, kExcludes, "--ignore-eos", {"--forced-eos-id"}},
                              {!options.search.sample,
                               kNeeds,
                               "--beam-sample",
                               {"--temp", "--top-k", "--top-p", "--seed"}}}));
  if (options.max_tokens == 0) {
    return MakeError(ErrorCode::kInvalid, "-n: expected at least 1 token with --beams, found 0");
  }
  if (options.batch.samples == 1) return {};
  return MakeError(ErrorCode::kInvalid, "--samples: expected --prompts with it, and no --beams");
}

// The options of one text that goes on, is shifted, or is guessed ahead.
Status CheckContinuation(const OptionList& list, const RunOptions& options) {
  const ContinueRunOptions& one = options.continuation;
  KVANT_TRY(CheckRules(
      list,
      {{!options.batch.prompts, kNeeds, "--prompts", {"--samples", "--parallel"}},
       {!one.session, kNeeds, "--session", {"--session-rewind"}},
       {!one.prompt_cache, kNeeds, "--prompt-cache", {"--prompt-cache-all", "--prompt-cache-ro"}},
       {!options.session.settings.options.kv_cache,
        kExcludes,
        "--no-kv-cache",
        {"--draft", "--session", "--prompt-cache", "--context-shift", "--keep"}},
       {one.session.has_value(), kExcludes, "--session", {"--prompt-cache"}},
       {one.prompt_cache_all, kExcludes, "--prompt-cache-all", {"--prompt-cache-ro"}}}));
  for (const char* name : {"--session", "--prompt-cache"}) {
    if (!list.Given(name) || !one.File()->empty()) continue;
    return MakeError(ErrorCode::kInvalid, "{}: expected a file, found ''", name);
  }
  return {};
}

}  // namespace

Status CheckModes(const OptionList& list, const RunOptions& options,
                  const Positionals& positionals) {
  KVANT_TRY(options.sampling.Check(list));
  KVANT_TRY(GrammarGroup::Check(list));
  if (options.batch.prompts.has_value() || options.searches()) {
    KVANT_TRY(CheckManyTexts(list, options, positionals));
  }
  if (options.translation.has_encoder) {
    KVANT_TRY(CheckFrames(options, positionals));
    KVANT_TRY(list.Exclude({"--prompt-cache", "--context-shift", "--keep", "--draft", "--echo"},
                           kHasEncoder));
  }
  KVANT_TRY(CheckChat(list, options));
  KVANT_TRY(CheckCalls(list, options));
  KVANT_TRY(CheckModel(list, options));
  if (options.searches()) KVANT_TRY(CheckSearch(list, options));
  return CheckContinuation(list, options);
}

}  // namespace kvant::tools
