// A conversation in files: FILE has the messages, tools and grammar as JSON, FILE.kvs the sequence
// with the messages' tokens.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/output_file.h"
#include "base/result.h"
#include "engine/grammar/saved_text.h"
#include "engine/limits.h"
#include "engine/text/chat_messages.h"
#include "engine/text/conversation_runner.h"
#include "kvant/conversation.h"

namespace kvant {
namespace {

using FileJson = nlohmann::ordered_json;

// Deeper than any conversation file, and shallow enough to be written by recursion.
constexpr int kChatFileDepthMax = 64;
constexpr int64_t kChatFileVersion = 1;
constexpr uint64_t kChatFileBytesMax = uint64_t{1} << 30;  // far more than any context holds

std::string DumpText(const FileJson& value) {
  return value.dump(-1, ' ', false, FileJson::error_handler_t::replace);
}

std::string TokensPath(const std::string& path) { return path + ".kvs"; }

std::string FingerprintText(const Model& model) {
  return fmt::format("{:016x}", model.Fingerprint());
}

Result<FileJson> ReadChatFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return MakeError(ErrorCode::kIo, "{}: no such file", path);
  }
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || size > kChatFileBytesMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: expected a saved conversation, found {} bytes", path,
                     size);
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return MakeError(ErrorCode::kIo, "{}: cannot read", path);
  bool deep = false;
  const auto look = [&deep](int depth, FileJson::parse_event_t, const FileJson&) {
    deep |= depth > kChatFileDepthMax;
    return !deep;
  };
  FileJson json = FileJson::parse(text.str(), look, false);
  const bool saved = !deep && json.is_object() && json.contains("kvant_chat");
  if (!saved || json["kvant_chat"] != kChatFileVersion) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: expected a conversation that /save has saved in version {}, found {}",
                     path, kChatFileVersion,
                     saved ? "version " + DumpText(json["kvant_chat"]) : "another file");
  }
  return json;
}

// A whole number from `min` to `max`; kCorrupt names the key.
Result<int64_t> TakeNumber(const FileJson& json, const std::string& path, const char* key,
                           int64_t min, int64_t max) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX}) ||
      found->get<int64_t>() < min || found->get<int64_t>() > max) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}: expected a number from {} to {}", path, key, min,
                     max);
  }
  return found->get<int64_t>();
}

Result<std::string> TakeString(const FileJson& json, const std::string& path, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}: expected a text", path, key);
  }
  return found->get<std::string>();
}

Result<std::vector<TokenId>> TakeIds(const FileJson& json, const std::string& path, const char* key,
                                     const Model& model) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array() || std::ssize(*found) > kContextMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}: expected an array of token ids", path, key);
  }
  std::vector<TokenId> ids;
  for (const FileJson& id : *found) {
    const bool number = id.is_number_integer();
    if (!number || id < 0 || id >= model.vocab_size()) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}: expected ids from 0 to {}, found {}", path,
                       key, model.vocab_size() - 1, DumpText(id).substr(0, 40));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

FileJson ChoiceJson(const ToolChoice& choice) {
  using Kind = ToolChoice::Kind;
  if (choice.kind == Kind::kNamed) return {{"name", choice.name}};
  if (choice.kind == Kind::kNone) return "none";
  return choice.kind == Kind::kRequired ? "required" : "auto";
}

// A choice among words, or the name of a tool in an object.
Result<ToolChoice> TakeChoice(const FileJson& json, const std::string& path) {
  const auto found = json.find("tool_choice");
  const bool is_word = found != json.end() && found->is_string();
  const bool has_name = found != json.end() && found->is_object() && found->contains("name") &&
                        (*found)["name"].is_string();
  ToolChoice choice;
  if (is_word) choice = ToolChoice::Of(found->get<std::string>());
  if (has_name) choice = {.kind = ToolChoice::Kind::kNamed, .name = (*found)["name"]};
  if ((!is_word && !has_name) || (is_word && choice.kind == ToolChoice::Kind::kNamed)) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: tool_choice: expected auto, none, required or an object with a name",
                     path);
  }
  const auto parallel = json.find("parallel_tool_calls");
  if (parallel == json.end() || !parallel->is_boolean()) {
    return MakeError(ErrorCode::kCorrupt, "{}: parallel_tool_calls: expected true or false", path);
  }
  choice.is_parallel = parallel->get<bool>();
  return choice;
}

Result<ConversationEntry> TakeEntry(const FileJson& json, const std::string& path,
                                    const Model& model, int64_t template_ids) {
  if (!json.is_object()) {
    return MakeError(ErrorCode::kCorrupt, "{}: messages: expected objects", path);
  }
  ConversationEntry entry;
  KVANT_ASSIGN(entry.message.role, TakeString(json, path, "role"));
  KVANT_ASSIGN(entry.message.content, TakeString(json, path, "content"));
  const std::string& role = entry.message.role;
  if (role != "user" && role != "assistant" && role != "tool") {
    return MakeError(ErrorCode::kCorrupt, "{}: role: expected user, assistant or tool, found '{}'",
                     path, role);
  }
  if (json.contains("members")) {
    KVANT_ASSIGN(entry.message.members, TakeString(json, path, "members"));
    const Status members = CheckMembers(entry.message);
    if (!members.ok()) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}", path, members.error().message);
    }
  }
  if (role != "assistant") return entry;
  KVANT_ASSIGN(entry.message.reasoning, TakeString(json, path, "reasoning"));
  KVANT_ASSIGN(entry.ids, TakeIds(json, path, "ids", model));
  KVANT_ASSIGN(entry.begin, TakeNumber(json, path, "begin", -1, template_ids));
  return entry;
}

}  // namespace

Result<Conversation::Saved> Conversation::ReadSaved(const std::string& path, const Model& model,
                                                    bool* has_tokens, bool* same_model) {
  KVANT_ASSIGN(const FileJson json, ReadChatFile(path));
  KVANT_ASSIGN(const std::string fingerprint, TakeString(json, path, "fingerprint"));
  *same_model = fingerprint == FingerprintText(model);
  Saved saved;
  KVANT_ASSIGN(saved.system, TakeString(json, path, "system"));
  if (*same_model) {
    KVANT_ASSIGN(saved.template_ids, TakeIds(json, path, "template_ids", model));
  }
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array()) {
    return MakeError(ErrorCode::kCorrupt, "{}: messages: expected an array", path);
  }
  for (const FileJson& message : *messages) {
    FileJson known = message;
    if (!*same_model && known.is_object()) {  // ids of another vocabulary mean nothing
      known["ids"] = FileJson::array();
      known["begin"] = -1;
    }
    KVANT_ASSIGN(saved.entries.emplace_back(),
                 TakeEntry(known, path, model, std::ssize(saved.template_ids)));
  }
  KVANT_ASSIGN(saved.forgotten, TakeNumber(json, path, "forgotten", 0, std::ssize(saved.entries)));
  KVANT_ASSIGN(saved.answers, TakeNumber(json, path, "answers", 0, INT64_MAX / 2));
  if (json.contains("tools")) {
    KVANT_ASSIGN(saved.tools, TakeString(json, path, "tools"));
    KVANT_ASSIGN(saved.tool_choice, TakeChoice(json, path));
  }
  if (json.contains("grammar")) {
    saved.grammar = grammar::TextOfJson(json["grammar"]);
    if (!saved.grammar.has_value()) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: grammar: expected a grammar with its kind and text", path);
    }
    if (!*same_model && !saved.grammar->triggers.tokens.empty()) {
      return MakeError(ErrorCode::kInvalid,
                       "{}: grammar: expected trigger tokens of this model, found another one's",
                       path);
    }
  }
  const auto tokens = json.find("tokens");
  *has_tokens = *same_model && tokens != json.end() && *tokens == true;
  return saved;
}

Status Conversation::Save(const std::string& path, std::string* note) const {
  note->clear();
  bool tokens = false;
  if (held_tokens() > 0) {
    const SequenceId held = sequence();
    const Status status = runner().Save(TokensPath(path), {&held, 1});
    if (!status.ok() && status.error().code == ErrorCode::kIo) return status;
    if (!status.ok()) *note = status.error().message;
    tokens = status.ok();
  }
  FileJson json;
  json["kvant_chat"] = kChatFileVersion;
  json["fingerprint"] = FingerprintText(model());
  json["tokens"] = tokens;
  json["system"] = system_;
  json["forgotten"] = forgotten_;
  json["answers"] = answers_;
  json["messages"] = FileJson::array();
  for (const ConversationEntry& entry : entries_) {
    FileJson message = {{"role", entry.message.role}, {"content", entry.message.content}};
    if (!entry.message.members.empty()) message["members"] = entry.message.members;
    if (entry.message.role == "assistant") {
      message["reasoning"] = entry.message.reasoning;
      message["ids"] = entry.ids;
      message["begin"] = entry.begin;
    }
    json["messages"].push_back(std::move(message));
  }
  json["template_ids"] = template_ids_;
  if (!options_.render.tools.empty()) {
    json["tools"] = options_.render.tools;
    json["tool_choice"] = ChoiceJson(options_.tool_choice);
    json["parallel_tool_calls"] = options_.tool_choice.is_parallel;
  }
  if (options_.grammar != nullptr) json["grammar"] = grammar::JsonOfText(options_.grammar->text());
  const std::string text = DumpText(json) + "\n";
  KVANT_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVANT_TRY(file.Write(text.data(), text.size()));
  return file.Commit();
}

Status Conversation::Load(const std::string& path, std::string* note) {
  note->clear();
  bool has_tokens = false;
  bool same_model = false;
  KVANT_ASSIGN(Saved saved, ReadSaved(path, model(), &has_tokens, &same_model));
  const bool has_some = !options_.render.tools.empty() || options_.grammar != nullptr;
  if (!has_some || follows_file_) {
    KVANT_ASSIGN(Follows follows, FollowsOf(saved, path));
    options_.render.tools = std::move(follows.tools);
    options_.tool_choice = std::move(follows.tool_choice);
    format_ = std::move(follows.format);
    tool_grammar_ = std::move(follows.tool_grammar);
    options_.grammar = std::move(follows.grammar);
    follows_file_ = true;
  }
  const Status status = TakeOver(std::move(saved), has_tokens ? TokensPath(path) : std::string());
  if (!status.ok()) {
    *note = status.error().message;
  } else if (!same_model) {
    *note = fmt::format("{}: saved with another model", path);
  }
  return {};
}

Status Conversation::TakeOver(Saved saved, const std::string& tokens_path) {
  system_ = std::move(saved.system);
  entries_ = std::move(saved.entries);
  template_ids_ = std::move(saved.template_ids);
  forgotten_ = saved.forgotten;
  answers_ = saved.answers;
  moved_ = false;
  // The sequence that there is makes room for that of the file.
  KVANT_TRY(running().FreeSequence(sequence()));
  Status status;
  if (!tokens_path.empty()) {
    const auto loaded = running().Load(tokens_path);
    if (loaded.ok() && loaded->size() == 1) {
      runners_->Replace(member_, loaded->front());
      return {};
    }
    if (!loaded.ok()) status = loaded.error();
    if (loaded.ok()) {
      for (const SequenceId sequence : *loaded) KVANT_TRY(running().FreeSequence(sequence));
      status = MakeError(ErrorCode::kInvalid, "{}: expected one sequence, found {}", tokens_path,
                         loaded->size());
    }
  }
  KVANT_ASSIGN(const SequenceId empty, running().NewSequence());
  runners_->Replace(member_, empty);
  return status;
}

}  // namespace kvant
