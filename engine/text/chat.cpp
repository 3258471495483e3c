#include "kvant/chat.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>

#include "base/result.h"
#include "engine/jinja/lexer.h"
#include "engine/jinja/template.h"
#include "engine/text/chat_built_in.h"
#include "engine/text/chat_messages.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";
constexpr const char* kToolTemplateKey = "tokenizer.chat_template.tool_use";

using Variables = std::vector<std::pair<std::string, jinja::Value>>;

// The names by which templates know special tokens.
void AddSpecialTokens(const Tokenizer& tokenizer, Variables& variables) {
  const SpecialTokens& special = tokenizer.special();
  const std::array<std::pair<const char*, std::optional<TokenId>>, 7> rows = {{
      {"bos_token", special.bos},
      {"eos_token", special.eos},
      {"unk_token", special.unk},
      {"sep_token", special.sep},
      {"pad_token", special.pad},
      {"mask_token", special.mask},
      {"cls_token", special.cls},
  }};
  for (const auto& [name, id] : rows) {
    if (id.has_value()) variables.emplace_back(name, jinja::Value::Own(tokenizer.piece(*id)));
  }
}

// "Nov 29 2026 18:30:00 GMT"; "" for a time that no calendar has.
std::string UtcTimeText(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  std::array<char, 64> text{};
  if (gmtime_r(&time, &parts) == nullptr) return "";
  return {text.data(), std::strftime(text.data(), text.size(), "%b %d %Y %H:%M:%S GMT", &parts)};
}

// The name that a template has for the reasoning of an assistant.
const char* ReasoningName(std::string_view source) {
  for (const char* name : {"reasoning_content", "thinking"}) {
    if (source.find(name) != std::string_view::npos) return name;
  }
  return "reasoning";
}

}  // namespace

struct ChatTemplate::Parts {
  const Tokenizer* tokenizer = nullptr;
  const char* reasoning = "reasoning_content";
  jinja::Template general;
  std::optional<jinja::Template> with_tools;  // of models that have another one for tools
  std::string source;                         // of the one for tools, if there is one
  Variables special;

  Result<ChatText> Render(jinja::Value messages, const ChatRenderOptions& options) const;
};

Result<ChatTemplate> ChatTemplate::Parse(const Tokenizer& tokenizer, const std::string& name,
                                         std::string_view source) {
  auto parts = std::make_shared<Parts>();
  parts->tokenizer = &tokenizer;
  parts->reasoning = ReasoningName(source);
  parts->source = source;
  KVANT_ASSIGN(parts->general, jinja::Template::Parse(name, source));
  AddSpecialTokens(tokenizer, parts->special);
  return ChatTemplate(std::move(parts));
}

bool ChatTemplate::Mentions(std::string_view text) const {
  return parts_->source.find(text) != std::string::npos;
}

Result<ChatTemplate> ChatTemplate::OfFile(const formats::GgufFile& file,
                                          const Tokenizer& tokenizer) {
  KVANT_ASSIGN(const std::optional<std::string_view> source, file.GetString(kTemplateKey));
  if (!source.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "{}: expected a chat template in {}, found none",
                     file.path(), kTemplateKey);
  }
  const std::string name = file.path() + ": " + kTemplateKey;
  auto parts = std::make_shared<Parts>();
  parts->tokenizer = &tokenizer;
  parts->reasoning = ReasoningName(*source);
  parts->source = *source;
  auto general = jinja::Template::Parse(name, *source);
  if (!general.ok()) return Error{ErrorCode::kCorrupt, general.error().message};
  parts->general = std::move(general).value();
  KVANT_ASSIGN(const std::optional<std::string_view> tools, file.GetString(kToolTemplateKey));
  if (tools.has_value()) {
    auto with_tools = jinja::Template::Parse(file.path() + ": " + kToolTemplateKey, *tools);
    if (!with_tools.ok()) return Error{ErrorCode::kCorrupt, with_tools.error().message};
    parts->with_tools = std::move(with_tools).value();
    parts->source = *tools;
  }
  AddSpecialTokens(tokenizer, parts->special);
  return ChatTemplate(std::move(parts));
}

Result<ChatTemplate> ChatTemplate::Named(const Tokenizer& tokenizer,
                                         const std::string& name_or_path) {
  for (const BuiltInTemplate& row : BuiltInTemplates()) {
    if (row.name == name_or_path) return Parse(tokenizer, name_or_path, row.source);
  }
  std::ifstream file(name_or_path, std::ios::binary);
  std::string source(jinja::kTemplateBytesMax + 1, '\0');
  file.read(source.data(), static_cast<std::streamsize>(source.size()));
  source.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (source.empty()) {
    std::string names;
    for (const BuiltInTemplate& row : BuiltInTemplates()) {
      names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    return MakeError(ErrorCode::kInvalid,
                     "--chat-template {}: expected a file with a template or one of {}",
                     name_or_path, names);
  }
  return Parse(tokenizer, name_or_path, source);
}

Result<ChatTemplate> ChatTemplate::OfModel(const Model& model) {
  return OfFile(model.file(), model.tokenizer());
}

Result<ChatTemplate> ChatTemplate::Parse(const Model& model, const std::string& name,
                                         std::string_view source) {
  return Parse(model.tokenizer(), name, source);
}

Result<ChatTemplate> ChatTemplate::Named(const Model& model, const std::string& name_or_path) {
  return Named(model.tokenizer(), name_or_path);
}

std::string_view ChatTemplate::source() const { return parts_->source; }

std::vector<std::string_view> ChatTemplate::BuiltInNames() {
  std::vector<std::string_view> names;
  for (const BuiltInTemplate& row : BuiltInTemplates()) names.push_back(row.name);
  return names;
}

Result<ChatText> ChatTemplate::Parts::Render(jinja::Value messages,
                                             const ChatRenderOptions& options) const {
  Variables variables = special;
  variables.emplace_back("messages", std::move(messages));
  variables.emplace_back("add_generation_prompt", options.add_generation_prompt);
  variables.emplace_back("documents", jinja::None{});
  jinja::Value tools = jinja::None{};
  if (!options.tools.empty()) {
    KVANT_ASSIGN(tools, jinja::ValueOfJson(options.tools, "the tools"));
    if (!tools.IsSequence()) {
      return MakeError(ErrorCode::kInvalid, "the tools: expected a JSON array, found a {}",
                       tools.TypeName());
    }
  }
  const bool has_tools = tools.Truth();
  variables.emplace_back("tools", std::move(tools));
  if (options.enable_thinking.has_value()) {
    variables.emplace_back("enable_thinking", *options.enable_thinking);
  }
  if (!options.variables.empty()) {
    KVANT_ASSIGN(const jinja::Value more,
                 jinja::ValueOfJson(options.variables, "the variables of the template"));
    if (!more.IsDict()) {
      return MakeError(ErrorCode::kInvalid,
                       "the variables of the template: expected a JSON object, found a {}",
                       more.TypeName());
    }
    for (const auto& [key, value] : more.dict().items) {
      variables.emplace_back(key.text().bytes(), value);
    }
  }
  const int64_t now = options.now.value_or(static_cast<int64_t>(std::time(nullptr)));
  if (has_tools && source.find("functions") != std::string::npos &&
      source.find("datetime") != std::string::npos) {
    // FireFunction v2 has the tools as a text, and wants the time.
    variables.emplace_back("functions", jinja::Text::Foreign(options.tools));
    variables.emplace_back("datetime", jinja::Value::Own(UtcTimeText(now)));
  }
  const jinja::Template& chosen = has_tools && with_tools.has_value() ? *with_tools : general;
  KVANT_ASSIGN(jinja::Text text, chosen.Render(variables, now));
  ChatText out;
  out.foreign = text.foreign();
  out.text = std::move(text).TakeBytes();
  return out;
}

Result<ChatText> ChatTemplate::RenderText(std::span<const ChatMessage> messages,
                                          const ChatRenderOptions& options) const {
  KVANT_ASSIGN(jinja::Value values, MessageValues(messages, parts_->reasoning));
  return parts_->Render(std::move(values), options);
}

Result<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                         const ChatRenderOptions& options) const {
  KVANT_ASSIGN(ChatText text, RenderText(messages, options));
  return std::move(text.text);
}

Result<ChatText> ChatTemplate::RenderJson(std::string_view messages,
                                          const ChatRenderOptions& options) const {
  KVANT_ASSIGN(jinja::Value values, jinja::ValueOfJson(messages, "the messages"));
  if (!values.IsSequence()) {
    return MakeError(ErrorCode::kInvalid, "the messages: expected a JSON array, found a {}",
                     values.TypeName());
  }
  return parts_->Render(std::move(values), options);
}

Result<std::vector<TokenId>> ChatTemplate::Tokens(std::span<const ChatMessage> messages,
                                                  const ChatRenderOptions& options) const {
  KVANT_ASSIGN(const ChatText text, RenderText(messages, options));
  return Tokens(text);
}

Result<std::vector<TokenId>> ChatTemplate::Tokens(const ChatText& text) const {
  const auto* const vocabulary = dynamic_cast<const VocabularyTokenizer*>(parts_->tokenizer);
  if (vocabulary == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "a tokenizer of kind {} has no conversations",
                     parts_->tokenizer->kind());
  }
  KVANT_ASSIGN(Encoding encoding, vocabulary->EncodeAround(text.text, text.foreign));
  std::vector<TokenId>& ids = encoding.ids;
  const SpecialTokens& special = parts_->tokenizer->special();
  if (special.add_bos && special.bos.has_value() && (ids.empty() || ids[0] != *special.bos)) {
    ids.insert(ids.begin(), *special.bos);
  }
  return std::move(ids);
}

}  // namespace kvant
