// kvant run --tools: one answer to the prompt as a message, and the calls in it.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "kvant/conversation.h"
#include "kvant/memory_plan.h"
#include "tools/run/run_modes.h"
#include "tools/run/text_report.h"

namespace kvant::tools {
namespace {

Result<std::unique_ptr<Conversation>> OpenForTools(const RunOptions& options,
                                                   const RunModel& opened) {
  const std::shared_ptr<const Model>& model = opened.model;
  KVANT_ASSIGN(SessionOptions session, options.session.Options());
  session = options.continuation.draft.With(session);
  ConversationOptions wanted;
  wanted.sampling = options.Sampling();
  KVANT_ASSIGN(wanted.render, options.conversation.Render());
  KVANT_ASSIGN(wanted.render.tools, options.tools.Read());
  wanted.tool_choice = ToolChoice::Of(options.tools.choice);
  wanted.max_tokens = options.max_tokens;
  wanted.stop_texts = options.StopTexts();
  wanted.ignore_eos = options.ignore_eos;
  KVANT_ASSIGN(wanted.grammar, options.grammar.Make(model->tokenizer()));
  wanted.context_shift = options.continuation.context_shift;
  KVANT_ASSIGN(const SessionOptions resolved, ResolveOptions(*model, session));
  const DraftGroup& draft = options.continuation.draft;
  KVANT_ASSIGN(wanted.draft, draft.Make(options.model, resolved, model->vocab_size()));
  wanted.draft_tokens = draft.TokensAtOnce();
  wanted.cancel = &CancelFlag();
  KVANT_ASSIGN(ChatTemplate chat_template, options.conversation.Template(*model));
  const auto open = [&options, session, model](int64_t sequences) {
    SessionOptions with_room = session;
    with_room.sequences = sequences;
    return options.session.OpenRunner(model, with_room);
  };
  KVANT_ASSIGN(auto made,
               Conversation::Create(model, open, std::move(chat_template), std::move(wanted)));
  KVANT_ASSIGN(const std::string system_text, options.conversation.System());
  made->SetSystem(system_text);
  return made;
}

}  // namespace

Status RunTools(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
                ResultStream& out, FinishReason* finish_reason) {
  KVANT_TRY(opened.model->CheckDecoder());
  KVANT_ASSIGN(const auto prompt, options.prompt.Read(positionals));
  KVANT_ASSIGN(const auto conversation, OpenForTools(options, opened));
  conversation->AddUser(prompt.value_or(""));
  StatusLine status(options.status_use());
  bool has_content = false;
  AnswerSink sink;
  sink.take = [&](AnswerPart part, std::string_view text) {
    if (part != AnswerPart::kContent) return !out.failed();
    status.Clear();
    has_content = has_content || !text.empty();
    return out.Write(text);
  };
  sink.call = [&](const ToolEvent&) { return !out.failed(); };
  sink.progress = [&](int64_t done, int64_t tokens) {
    status.Set(fmt::format("prefill {} of {} tokens", done, tokens));
    return true;
  };
  const auto report = conversation->Answer(sink);
  status.Clear();
  if (!report.ok()) return report.error();
  *finish_reason = report->finish_reason;
  if (has_content) out.Write("\n");
  for (const ToolCall& call : report->calls) {
    if (call.is_complete) {
      out.Write(CallLine(call));
    } else if (!options.quiet) {
      Note(fmt::format("the call of {} is not complete: {}", Visible(call.name),
                       Visible(call.arguments)));
    }
  }
  const ToolChoice::Kind choice = conversation->tool_choice().kind;
  const bool must_call =
      choice == ToolChoice::Kind::kRequired || choice == ToolChoice::Kind::kNamed;
  const std::string early = EarlyEnd(report->finish_reason, conversation->context(),
                                     must_call ? GrammarUse::kFollowed : GrammarUse::kNone);
  if (!early.empty() && !options.quiet && !out.failed()) Note(early);
  return {};
}

}  // namespace kvant::tools
