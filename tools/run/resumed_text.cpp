#include "tools/run/resumed_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/result.h"
#include "tools/run/saved_grammar.h"
#include "tools/run/search_request.h"
#include "tools/run/written_text.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

// TakeUp for a model with an encoder: encodes the source, or takes that of the saved text and goes
// on at the text's end.
Status TakeUpWritten(const RunOptions& options, const std::optional<std::string>& text,
                     const SessionLock* saved, TextRun* run) {
  Session& session = *run->session;
  Runner& runner = session.runner();
  const std::string path = options.continuation.File().value_or("");
  if (saved != nullptr && !saved->empty()) KVANT_TRY(session.Load(path, &run->note));
  const bool goes_on = session.length() > 0;
  const bool has_source = text.has_value() || options.frames.file.has_value();
  KVANT_ASSIGN(WrittenText written,
               ReadWritten(options.translation, options.frames, *run->model, text));
  if (goes_on && has_source) {
    const bool same =
        std::ranges::equal(written.source, runner.source_tokens(session.sequence())) &&
        std::ranges::equal(written.frames, runner.source_frames(session.sequence()));
    if (!same) {
      return MakeError(
          ErrorCode::kInvalid,
          "{}: the saved text answers another source: leave this one out to go on with "
          "that text, or take another file",
          path);
    }
  }
  if (!goes_on) {
    KVANT_ASSIGN(const SourceId source, written.frames.empty()
                                            ? runner.Encode(written.source)
                                            : runner.EncodeFrames(written.frames));
    KVANT_TRY(runner.SetSource(session.sequence(), source));
    KVANT_TRY(runner.FreeSource(source));
    KVANT_TRY(ChooseLanguage(options.translation, runner, session.sequence(), written.first));
    run->prompt = std::move(written.first);
    return {};
  }
  const std::span<const TokenId> tokens = session.tokens();
  run->prompt.assign(tokens.begin(), tokens.end());
  const bool begins_so = !options.translation.prefix.has_value() ||
                         (tokens.size() >= written.first.size() &&
                          std::ranges::equal(written.first, tokens.first(written.first.size())));
  if (!begins_so && !options.continuation.session_rewind) {
    return MakeError(
        ErrorCode::kInvalid,
        "{}: the saved text does not begin with --prefix: leave it out to go on at the "
        "end of the text, or give --session-rewind to drop what differs",
        path);
  }
  if (!begins_so) run->prompt = std::move(written.first);
  const auto end = std::ranges::mismatch(tokens, run->prompt).in1;
  const int64_t kept = std::min<int64_t>(end - tokens.begin(), std::ssize(run->prompt) - 1);
  if (!options.quiet) {
    Note(fmt::format("{}: goes on behind {} of {} tokens of its text", path,
                     begins_so ? tokens.size() : static_cast<size_t>(kept), tokens.size()));
  }
  return session.Rewind(kept);
}

}  // namespace

Status TakeUp(const RunOptions& options, const std::optional<std::string>& text,
              const SessionLock* saved, TextRun* run) {
  if (options.translation.has_encoder) return TakeUpWritten(options, text, saved, run);
  const ContinueRunOptions& one = options.continuation;
  const Tokenizer& tokenizer = run->model->tokenizer();
  if (saved != nullptr && !saved->empty()) {
    KVANT_TRY(run->session->Load(*one.File(), &run->note));
  }
  const bool cache = one.prompt_cache.has_value();
  if (options.chat) {
    KVANT_ASSIGN(run->prompt, options.PromptIds(*run->model, text));
    return {};
  }
  auto next = Continue(tokenizer, run->session->tokens(), text,
                       cache || one.session_rewind ? SavedText::kRewound : SavedText::kKept);
  if (!next.ok()) {
    return saved == nullptr
               ? Status(next.error())
               : MakeError(next.error().code, "{}: {}", *one.File(), next.error().message);
  }
  run->prompt = std::move(next->prompt);
  run->may_save_part = next->repeated;
  // The logits of the last token are needed, so one at least is computed.
  const int64_t kept = std::min(next->kept, std::ssize(run->prompt) - 1);
  if (kept < run->session->length()) KVANT_TRY(run->session->Rewind(kept));
  if (!next->note.empty() && !cache && !options.quiet) {
    Note(fmt::format("{}: {}", *one.File(), next->note));
  }
  return {};
}

namespace {

// Whether a text that ended so stops before its grammar does.
bool StopsShort(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
    case FinishReason::kContext:
    case FinishReason::kMemory:
    case FinishReason::kCancelled:
    case FinishReason::kDeadline: return true;
    case FinishReason::kStop:
    case FinishReason::kStopText:
    case FinishReason::kNoToken: break;
  }
  return false;
}

Status SaveWithGrammar(const std::string& path, FinishReason reason, const TextRun& run) {
  std::string note;
  const int64_t end = run.session->length();
  if (run.grammar != nullptr && StopsShort(reason) && run.grammar_begin <= end) {
    note = NoteOf({run.grammar->text(), run.grammar_begin, end});
  }
  return run.session->Save(path, note);
}

}  // namespace

Status TakeUpGrammar(const RunOptions& options, TextRun* run) {
  run->grammar_begin = std::ssize(run->prompt);
  const std::string path = options.continuation.File().value_or("");
  KVANT_ASSIGN(const auto saved, ReadNote(path, run->note));
  if (!saved.has_value() || saved->end != std::ssize(run->prompt)) return {};
  if (run->grammar != nullptr &&
      NoteOf({run->grammar->text(), saved->begin, saved->end}) != run->note) {
    return {};
  }
  if (run->grammar == nullptr) {
    KVANT_ASSIGN(run->grammar, Grammar::Create(saved->text, run->model->tokenizer()));
  }
  run->grammar_begin = saved->begin;
  return {};
}

Status SaveText(const ContinueRunOptions& options, const Generation& generation, TextRun& run) {
  Session& session = *run.session;
  const bool part = session.length() < std::ssize(run.prompt) && generation.ids.empty();
  if (options.prompt_cache_read_only || session.length() == 0) return {};
  if (part && !run.may_save_part) return {};
  if (generation.finish_reason == FinishReason::kCancelled) TakeSignal();
  const int64_t more = std::ssize(generation.ids) - generation.decode_tokens;
  if (part) return session.Save(*options.File(), run.note);
  if (options.prompt_cache.has_value() && !options.prompt_cache_all) {
    const int64_t prompt = std::ssize(run.prompt);
    if (session.length() > prompt) KVANT_TRY(session.Rewind(prompt));
  } else if (more < 0) {
    KVANT_TRY(session.Rewind(session.length() + more));
  } else if (more > 0) {
    // Where there is no room for a token, the next run will choose it again.
    const std::span<const TokenId> ids = generation.ids;
    const Status status = session.Append(ids.last(static_cast<size_t>(more)));
    const bool full = !status.ok() && (status.error().code == ErrorCode::kContextFull ||
                                       status.error().code == ErrorCode::kOutOfMemory ||
                                       status.error().code == ErrorCode::kCancelled);
    if (!status.ok() && !full) return status;
  }
  return SaveWithGrammar(*options.File(), generation.finish_reason, run);
}

Status SetProcessors(const RunOptions& options, const TextRun& run, GenerateOptions* generate) {
  if (!options.translation.has_encoder) return {};
  KVANT_ASSIGN(generate->processors,
               Processors(options, *run.model, run.prompt.size(), &generate->max_tokens));
  const bool goes_on = run.session->length() > 0;
  generate->processors_prompt = goes_on ? 1 : std::ssize(run.prompt);
  return {};
}

}  // namespace kvant::tools
