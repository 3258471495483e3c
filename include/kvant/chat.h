// Conversations as the text and the token ids that a model was trained to see: the model's own
// Jinja template, run by kvant's interpreter (engine/jinja/).
//
// The interpreter has no access to anything but the conversation and is limited in steps, depth and
// bytes. A template that fails is an error that names its line and the reason; no other template
// takes its place.
// Thread-safety: a ChatTemplate is const after it was made; Render and Tokens may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/text_range.h"
#include "kvant/token_id.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant"; which of them exist, the template decides
  std::string content;  // UTF-8
  std::string reasoning;  // what an assistant thought before its content; "" if nothing
  // A JSON object of further members for the template, such as tool_calls and tool_call_id; "" for
  // none. They take the place of the members above where they have the same name.
  std::string members = {};
};

// The messages of a JSON array of objects. Texts named role, content and reasoning_content,
// reasoning or thinking are what ChatMessage calls them; all else, such as content in parts, are
// further members. kInvalid for other JSON and for a message without a role.
Result<std::vector<ChatMessage>> MessagesOfJson(std::string_view json);
// The JSON array from which MessagesOfJson makes these messages; reasoning is a member
// reasoning_content. Bytes that are not UTF-8 become U+FFFD.
std::string JsonOfMessages(std::span<const ChatMessage> messages);

struct ChatRenderOptions {
  bool add_generation_prompt = true;  // end with what the assistant's next message begins with
  std::string tools = {};             // a JSON array of tools; "" for none
  // A JSON object of further variables for the template; "" for none. They go before all others.
  std::string variables = {};
  std::optional<bool> enable_thinking = {};  // the variable of this name; absent without a value
  std::optional<int64_t> now = {};  // seconds since 1970 for strftime_now; the clock without it
};

// A rendered conversation, and which bytes of it came from messages, tools and variables rather
// than from the template: ascending, disjoint.
struct ChatText {
  std::string text;
  std::vector<TextRange> foreign;
};

class ChatTemplate {
 public:
  // The template in the model's file (tokenizer.chat_template). kNotSupported where there
  // is none; kCorrupt, with the line, where it is no template.
  static Result<ChatTemplate> OfModel(const Model& model);
  // The template in `source`; `name` is what errors call it. The model gives the names of BOS, EOS
  // and the like and the vocabulary. kInvalid, with the line, where it is no template.
  static Result<ChatTemplate> Parse(const Model& model, const std::string& name,
                                    std::string_view source);
  // --chat-template: the name of a template that comes with kvant (BuiltInNames) or the path of a
  // file. kInvalid for anything else.
  static Result<ChatTemplate> Named(const Model& model, const std::string& name_or_path);
  static std::vector<std::string_view> BuiltInNames();

  // Templates for a vocabulary without a model. `tokenizer` must outlive the template.
  static Result<ChatTemplate> Parse(const Tokenizer& tokenizer, const std::string& name,
                                    std::string_view source);
  static Result<ChatTemplate> OfFile(const formats::GgufFile& file, const Tokenizer& tokenizer);
  static Result<ChatTemplate> Named(const Tokenizer& tokenizer, const std::string& name_or_path);

  // The text of a conversation. kInvalid, with name and line, where the template refuses it, fails
  // or exceeds a limit, and for options that are no JSON.
  Result<std::string> Render(std::span<const ChatMessage> messages,
                             const ChatRenderOptions& options = {}) const;
  Result<ChatText> RenderText(std::span<const ChatMessage> messages,
                              const ChatRenderOptions& options = {}) const;
  // Renders a JSON array of messages with any members (tool_calls, content in parts ...).
  Result<ChatText> RenderJson(std::string_view messages,
                              const ChatRenderOptions& options = {}) const;

  // Whether the source of the template has this text in it.
  bool Mentions(std::string_view text) const;

  // The ids of a conversation. Control tokens are made only from text that the template itself
  // wrote, never from text of messages, tools or variables. BOS comes first where the model's
  // metadata ask for it, once, whether the template wrote it or not.
  Result<std::vector<TokenId>> Tokens(std::span<const ChatMessage> messages,
                                      const ChatRenderOptions& options = {}) const;
  Result<std::vector<TokenId>> Tokens(const ChatText& text) const;

  // The text of the template itself: of the one for tools where the model has two.
  std::string_view source() const;

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;  // copies share it
};

}  // namespace kvant
