// The calls of kvant/kvant_conversation.h.
#include "kvant/conversation.h"

#include "engine/capi/handles.h"
#include "kvant/model_defaults.h"

namespace kvant::capi {

// A conversation, and the runner that was given, or flags in the place of one that it opens. The
// flags outlive the conversation.
struct ConversationState {
  std::shared_ptr<RunnerState> owner;
  std::unique_ptr<Conversation> conversation;
};

}  // namespace kvant::capi

struct kvant_conversation {
  std::shared_ptr<kvant::capi::ConversationState> state;
};

namespace kvant::capi {
namespace {

constexpr kvant_conversation_options kConversationDefaults = {
    .struct_size = sizeof(kvant_conversation_options),
    .sampling = nullptr,
    .render = nullptr,
    .max_tokens = -1,
    .stop_texts = nullptr,
    .stop_text_count = 0,
    .ignore_end = 0,
    .context_shift = 0,
    .beams = 1,
    .grammar = nullptr,
    .tool_choice = nullptr,
};

Result<ConversationOptions> ReadConversation(const Model& model,
                                             const kvant_conversation_options* given) {
  KVANT_ASSIGN(const auto in, ReadStruct(given, kConversationDefaults, "conversation options"));
  if (in.max_tokens < -1 || in.max_tokens == 0) {
    return MakeError(ErrorCode::kInvalid, "max_tokens: expected -1 or at least 1, found {}",
                     in.max_tokens);
  }
  ConversationOptions out;
  out.sampling = model.defaults().sampling;
  if (in.sampling != nullptr) {
    KVANT_ASSIGN(out.sampling, ReadSampling(in.sampling));
  }
  KVANT_ASSIGN(out.render, ReadRender(in.render));
  out.max_tokens = in.max_tokens;
  KVANT_ASSIGN(out.stop_texts, ReadTexts(in.stop_texts, in.stop_text_count, "stop_texts"));
  out.ignore_eos = in.ignore_end != 0;
  out.context_shift = in.context_shift != 0;
  out.beams = in.beams;
  out.grammar = GrammarOf(in.grammar);
  if (in.tool_choice != nullptr) out.tool_choice = ToolChoice::Of(in.tool_choice);
  return out;
}

Result<ChatTemplate> TemplateOf(const kvant_template* given, const Model& model) {
  if (given != nullptr) return given->chat_template;
  return ChatTemplate::OfModel(model);
}

// Control tokens of a template are those of the vocabulary that it was parsed for.
Status CheckTemplate(const kvant_template* given, const std::shared_ptr<const Model>& model) {
  if (given == nullptr || given->model == model) return {};
  return MakeError(ErrorCode::kInvalid, "chat_template: expected one of the same model");
}

// Runs `body`, a function of Conversation& that returns Status, as a call on its runner.
template <class Body>
kvant_status CallConversation(const kvant_conversation* handle, Body&& body) noexcept {
  return Call(handle, [&]() -> Status {
    KVANT_TRY(Need(handle, "conversation"));
    const std::shared_ptr<ConversationState> state = handle->state;
    return Alone(state->owner, [&] { return body(*state->conversation); });
  });
}

Status GiveConversation(std::shared_ptr<RunnerState> owner, std::unique_ptr<Conversation> made,
                        kvant_conversation** out) {
  auto state =
      std::make_shared<ConversationState>(ConversationState{std::move(owner), std::move(made)});
  return Give(out, std::make_unique<kvant_conversation>(kvant_conversation{std::move(state)}));
}

// An event that belongs to a call.
kvant_call_event EventInC(const ToolEvent& event, const std::string& id) {
  kvant_call_event out = {};
  out.struct_size = sizeof(out);
  out.kind = event.kind == ToolEvent::Kind::kCallBegin   ? KVANT_CALL_BEGIN
             : event.kind == ToolEvent::Kind::kArguments ? KVANT_CALL_ARGUMENTS
                                                         : KVANT_CALL_END;
  out.is_complete = event.is_complete ? 1 : 0;
  out.call = event.call;
  out.text = event.text.data();
  out.size = event.text.size();
  out.id = id.c_str();
  return out;
}

AnswerSink SinkOf(const kvant_answer_sink& calls) {
  AnswerSink sink;
  if (calls.on_text != nullptr) {
    sink.take = [&calls](AnswerPart part, std::string_view text) {
      const int32_t number =
          part == AnswerPart::kReasoning ? KVANT_PART_REASONING : KVANT_PART_CONTENT;
      return calls.on_text(calls.user, number, text.data(), text.size()) == 0;
    };
  }
  if (calls.on_prompt != nullptr) {
    sink.progress = [&calls](int64_t done, int64_t tokens) {
      return calls.on_prompt(calls.user, done, tokens) == 0;
    };
  }
  if (calls.on_call != nullptr) {
    sink.call = [&calls](const ToolEvent& event) {
      const std::string id(event.id);
      const kvant_call_event in_c = EventInC(event, id);
      return calls.on_call(calls.user, &in_c) == 0;
    };
  }
  return sink;
}

kvant_answer_report ReportInC(const AnswerReport& report) {
  kvant_answer_report out = {};
  out.conversation_tokens = report.conversation_tokens;
  out.processed_tokens = report.processed_tokens;
  out.reused_tokens = report.reused_tokens;
  out.replayed_tokens = report.replayed_tokens;
  out.generated_tokens = report.generated_tokens;
  out.forgotten_messages = report.forgotten_messages;
  out.finish_reason = static_cast<int32_t>(report.finish_reason);
  out.shifted = report.shifted ? 1 : 0;
  out.prompt_seconds = report.prefill_seconds;
  out.decode_seconds = report.decode_seconds;
  return out;
}

Status GiveNote(const std::string& note, char** out) {
  if (out != nullptr) *out = CopyText(note);
  return {};
}

}  // namespace
}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

// ---- Creation -----------------------------------------------------------------------------------

kvant_status kvant_conversation_options_default(kvant_conversation_options* options, size_t size) {
  return FillDefault(options, size, kConversationDefaults);
}

kvant_status kvant_conversation_open(const kvant_model* model,
                                     const kvant_runner_options* runner_options,
                                     const kvant_template* chat_template,
                                     const kvant_conversation_options* options,
                                     kvant_conversation** conversation) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(conversation, "conversation"));
    *conversation = nullptr;
    const std::shared_ptr<const Model>& held = model->model;
    KVANT_ASSIGN(SessionOptions session, ReadRunner(runner_options));
    KVANT_TRY(CheckTemplate(chat_template, held));
    KVANT_ASSIGN(ConversationOptions wanted, ReadConversation(*held, options));
    KVANT_ASSIGN(ChatTemplate made_template, TemplateOf(chat_template, *held));
    auto owner = std::make_shared<RunnerState>();
    owner->model = held;
    wanted.cancel = session.cancel = &owner->cancel;
    const auto open = [held, session](int64_t sequences) {
      SessionOptions with_room = session;
      with_room.sequences = sequences;
      return Runner::Create(held, with_room);
    };
    KVANT_ASSIGN(auto made,
                 Conversation::Create(held, open, std::move(made_template), std::move(wanted)));
    return GiveConversation(std::move(owner), std::move(made), conversation);
  });
}

kvant_status kvant_conversation_new(kvant_runner* runner, const kvant_template* chat_template,
                                    const kvant_conversation_options* options,
                                    kvant_conversation** conversation) {
  return CallRunner(runner, [&](Runner& held) -> Status {
    KVANT_TRY(Need(conversation, "conversation"));
    *conversation = nullptr;
    const std::shared_ptr<RunnerState> owner = runner->state;
    KVANT_TRY(CheckTemplate(chat_template, owner->model));
    KVANT_ASSIGN(ConversationOptions wanted, ReadConversation(*owner->model, options));
    KVANT_ASSIGN(ChatTemplate made_template, TemplateOf(chat_template, *owner->model));
    wanted.cancel = &owner->cancel;
    const std::shared_ptr<Runner> shared(owner, &held);
    KVANT_ASSIGN(auto made,
                 Conversation::Create(shared, std::move(made_template), std::move(wanted)));
    return GiveConversation(owner, std::move(made), conversation);
  });
}

void kvant_conversation_free(kvant_conversation* conversation) { Free(conversation); }

kvant_status kvant_conversation_fork(kvant_conversation* conversation, const uint64_t* seed,
                                     kvant_conversation** fork) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_TRY(Need(fork, "fork"));
    *fork = nullptr;
    KVANT_ASSIGN(auto made,
                 held.Fork(seed == nullptr ? std::nullopt : std::optional<uint64_t>(*seed)));
    return GiveConversation(conversation->state->owner, std::move(made), fork);
  });
}

kvant_status kvant_conversation_get_info(const kvant_conversation* conversation,
                                         kvant_conversation_info* info) {
  return CallConversation(conversation, [&](const Conversation& held) -> Status {
    kvant_conversation_info values = {};
    values.messages = std::ssize(held.entries());
    values.forgotten = held.forgotten();
    values.held_tokens = held.held_tokens();
    values.context = held.context();
    return WriteStruct(info, values, "info");
  });
}

// ---- Messages -----------------------------------------------------------------------------------

kvant_status kvant_conversation_set_system(kvant_conversation* conversation, const char* text,
                                           size_t size) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_ASSIGN(const std::string_view given, Text(text, size, "text"));
    held.SetSystem(std::string(given));
    return {};
  });
}

kvant_status kvant_conversation_add_user(kvant_conversation* conversation, const char* text,
                                         size_t size) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_ASSIGN(const std::string_view given, Text(text, size, "text"));
    held.AddUser(std::string(given));
    return {};
  });
}

kvant_status kvant_conversation_add(kvant_conversation* conversation, const char* messages,
                                    size_t size) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_ASSIGN(const std::string_view given, Text(messages, size, "messages"));
    return held.AddJson(given);
  });
}

kvant_status kvant_conversation_messages(const kvant_conversation* conversation, char** messages,
                                         size_t* size) {
  return CallConversation(conversation, [&](const Conversation& held) -> Status {
    KVANT_TRY(Need(messages, "messages"));
    const std::string json = held.Json();
    *messages = CopyText(json);
    if (size != nullptr) *size = json.size();
    return {};
  });
}

kvant_status kvant_conversation_undo(kvant_conversation* conversation, char** text, size_t* size) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    const std::optional<std::string> taken = held.Undo();
    if (!taken.has_value()) {
      return MakeError(ErrorCode::kInvalid, "there is no message to take back");
    }
    if (text != nullptr) *text = CopyText(*taken);
    if (size != nullptr) *size = taken->size();
    return {};
  });
}

kvant_status kvant_conversation_edit(kvant_conversation* conversation, const char* text,
                                     size_t size) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_ASSIGN(const std::string_view given, Text(text, size, "text"));
    if (held.Edit(std::string(given))) return {};
    return MakeError(ErrorCode::kInvalid, "there is no message to change");
  });
}

kvant_status kvant_conversation_drop_answer(kvant_conversation* conversation) {
  return CallConversation(conversation, [](Conversation& held) -> Status {
    if (held.DropAnswer()) return {};
    return MakeError(ErrorCode::kInvalid, "the last message is no answer");
  });
}

kvant_status kvant_conversation_reset(kvant_conversation* conversation) {
  return CallConversation(conversation, [](Conversation& held) -> Status {
    held.Reset();
    return {};
  });
}

kvant_status kvant_conversation_forget(kvant_conversation* conversation, int64_t* messages) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_ASSIGN(const int64_t forgotten, held.Forget());
    if (messages != nullptr) *messages = forgotten;
    return {};
  });
}

kvant_status kvant_conversation_set_beams(kvant_conversation* conversation, int32_t beams) {
  return CallConversation(conversation, [&](Conversation& held) { return held.SetBeams(beams); });
}

kvant_status kvant_conversation_set_grammar(kvant_conversation* conversation,
                                            const kvant_grammar* grammar) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    return held.SetGrammar(GrammarOf(grammar));
  });
}

kvant_status kvant_conversation_set_tool_choice(kvant_conversation* conversation,
                                                const char* tool_choice) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_TRY(Need(tool_choice, "tool_choice"));
    return held.SetToolChoice(ToolChoice::Of(tool_choice));
  });
}

// ---- Answers and files --------------------------------------------------------------------------

kvant_status kvant_conversation_answer(kvant_conversation* conversation,
                                       const kvant_answer_sink* sink, kvant_answer_report* report) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    constexpr kvant_answer_sink kNone = {sizeof(kvant_answer_sink), nullptr, nullptr, nullptr,
                                         nullptr};
    KVANT_ASSIGN(const auto calls, ReadStruct(sink, kNone, "sink"));
    if (report != nullptr) KVANT_TRY(WriteStruct(report, kvant_answer_report{}, "report"));
    const std::shared_ptr<RunnerState> owner = conversation->state->owner;
    KVANT_ASSIGN(const AnswerReport made, held.Answer(SinkOf(calls)));
    if (made.finish_reason == FinishReason::kCancelled) owner->cancel = false;
    if (report == nullptr) return {};
    return WriteStruct(report, ReportInC(made), "report");
  });
}

void kvant_conversation_cancel(kvant_conversation* conversation) {
  if (conversation != nullptr) conversation->state->owner->cancel = true;
}

kvant_status kvant_conversation_save(const kvant_conversation* conversation, const char* path,
                                     char** note) {
  return CallConversation(conversation, [&](const Conversation& held) -> Status {
    KVANT_TRY(Need(path, "path"));
    std::string told;
    KVANT_TRY(held.Save(path, &told));
    return GiveNote(told, note);
  });
}

kvant_status kvant_conversation_load(kvant_conversation* conversation, const char* path,
                                     char** note) {
  return CallConversation(conversation, [&](Conversation& held) -> Status {
    KVANT_TRY(Need(path, "path"));
    std::string told;
    KVANT_TRY(held.Load(path, &told));
    return GiveNote(told, note);
  });
}
