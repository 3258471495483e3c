// Fuzzes what a client can put into the body of a request for text: whatever it is, it is refused
// with a reason or read into fields that keep their limits.
//
// The first byte chooses the interface; the rest is the body.
#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/serve/request/chat_messages.h"
#include "tools/serve/request/dialects.h"
#include "tools/serve/request/request_fields.h"

namespace {

using kvant::formats::ParseJson;
using kvant::tools::ChatMessages;
using kvant::tools::ChatRequest;
using kvant::tools::PromptField;
using kvant::tools::Refusal;
using kvant::tools::RequestJson;
using kvant::tools::TextFields;
using kvant::tools::TextUse;

constexpr int32_t kVocab = 1000;

// Whether the request goes on; a refusal has a status of clients' errors and a text.
bool GoesOn(const Refusal& refusal) {
  if (!refusal.has_value()) return true;
  const bool is_clear =
      ((refusal->status >= 400 && refusal->status < 500) || refusal->status == 501) &&
      !refusal->message.empty();
  if (!is_clear) __builtin_trap();
  (void)kvant::tools::AnswerOf(*refusal, kvant::tools::ErrorJson(*refusal));
  return false;
}

void CheckFields(const TextFields& fields) {
  const bool keeps_limits = fields.max_tokens >= -1 && fields.samples >= 1 &&
                            fields.samples <= kvant::tools::kSamplesMax &&
                            fields.stop_texts.size() <= kvant::tools::kStopTextsMax &&
                            fields.log_probs.value_or(0) >= 0 &&
                            fields.log_probs.value_or(0) <= kvant::tools::kTopLogProbsMax;
  if (!keeps_limits) __builtin_trap();
}

// `convert` makes a chat of the body.
using ToChat = Refusal (*)(const RequestJson& body, std::string_view text, ChatRequest* chat);

void ReadAsChat(ToChat convert, const RequestJson& body, std::string_view text) {
  ChatRequest chat;
  if (!GoesOn(convert(body, text, &chat))) return;
  if (!chat.tools.tools.empty() && !ParseJson(chat.tools.tools, "the tools").ok()) {
    __builtin_trap();
  }
  TextFields fields;
  fields.body = text;
  int64_t unknown = 0;
  if (GoesOn(ReadFields(chat.body, TextUse::kChat, fields, &unknown))) CheckFields(fields);
  ChatMessages messages;
  if (!GoesOn(ReadMessages(chat.body, &messages))) return;
  const auto read = ParseJson(messages.json, "the messages");
  if (!read.ok() || !read->is_array()) __builtin_trap();
}

void ReadCompletion(TextUse use, const RequestJson& body, std::string_view text) {
  TextFields fields;
  fields.body = text;
  int64_t unknown = 0;
  if (GoesOn(ReadFields(body, use, fields, &unknown))) CheckFields(fields);
  std::vector<PromptField> prompts;
  if (!GoesOn(ReadPrompts(body, "prompt", kVocab, &prompts))) return;
  if (prompts.empty() || prompts.size() > kvant::tools::kPromptsMax) __builtin_trap();
  for (const PromptField& prompt : prompts) {
    for (const kvant::TokenId id : prompt.ids) {
      if (id < 0 || id >= kVocab) __builtin_trap();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto body = ParseJson(text, "the body");
  if (!body.ok() || !body->is_object()) return 0;
  switch (data[0] % 5) {
    case 0: ReadAsChat(kvant::tools::ReadChat, *body, text); break;
    case 1: ReadCompletion(TextUse::kCompletion, *body, text); break;
    case 2: ReadAsChat(kvant::tools::ChatOfMessages, *body, text); break;
    case 3: ReadAsChat(kvant::tools::ChatOfResponses, *body, text); break;
    default: ReadCompletion(TextUse::kNative, *body, text);
  }
  return 0;
}
