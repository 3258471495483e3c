#include "tools/chat/chat_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/output_file.h"
#include "base/result.h"
#include "engine/limits.h"
#include "tools/options/json.h"

namespace kvant::tools {
namespace {

constexpr int64_t kChatFileVersion = 1;
constexpr uint64_t kChatFileBytesMax = uint64_t{1} << 30;  // far more than any context holds

std::string TokensPath(const std::string& path) { return path + ".kvs"; }

std::string FingerprintText(const Model& model) {
  return fmt::format("{:016x}", model.Fingerprint());
}

Result<Json> ReadJson(const std::string& path) {
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
  Json json = Json::parse(text.str(), nullptr, false);
  const bool saved = json.is_object() && json.contains("kvant_chat");
  if (!saved || json["kvant_chat"] != kChatFileVersion) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: expected a conversation that /save has saved in version {}, found {}",
                     path, kChatFileVersion,
                     saved ? "version " + Dump(json["kvant_chat"]) : "another file");
  }
  return json;
}

// A whole number from `min` to `max`; kCorrupt names the key.
Result<int64_t> TakeNumber(const Json& json, const std::string& path, const char* key, int64_t min,
                           int64_t max) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX}) ||
      found->get<int64_t>() < min || found->get<int64_t>() > max) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}: expected a number from {} to {}", path, key, min,
                     max);
  }
  return found->get<int64_t>();
}

Result<std::string> TakeString(const Json& json, const std::string& path, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}: expected a text", path, key);
  }
  return found->get<std::string>();
}

Result<std::vector<TokenId>> TakeIds(const Json& json, const std::string& path, const char* key,
                                     const Model& model) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array() || std::ssize(*found) > kContextMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}: expected an array of token ids", path, key);
  }
  std::vector<TokenId> ids;
  for (const Json& id : *found) {
    const bool number = id.is_number_integer();
    if (!number || id < 0 || id >= model.vocab_size()) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}: expected ids from 0 to {}, found {}", path,
                       key, model.vocab_size() - 1, Dump(id).substr(0, 40));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

Result<ChatEntry> TakeEntry(const Json& json, const std::string& path, const Model& model,
                            int64_t template_ids) {
  if (!json.is_object()) {
    return MakeError(ErrorCode::kCorrupt, "{}: messages: expected objects", path);
  }
  ChatEntry entry;
  KVANT_ASSIGN(entry.message.role, TakeString(json, path, "role"));
  KVANT_ASSIGN(entry.message.content, TakeString(json, path, "content"));
  if (entry.message.role != "user" && entry.message.role != "assistant") {
    return MakeError(ErrorCode::kCorrupt, "{}: role: expected user or assistant, found '{}'", path,
                     entry.message.role);
  }
  if (entry.message.role == "user") return entry;
  KVANT_ASSIGN(entry.message.reasoning, TakeString(json, path, "reasoning"));
  KVANT_ASSIGN(entry.ids, TakeIds(json, path, "ids", model));
  KVANT_ASSIGN(entry.begin, TakeNumber(json, path, "begin", -1, template_ids));
  return entry;
}

Result<ChatSession::Saved> TakeSaved(const Json& json, const std::string& path, const Model& model,
                                     bool same_model) {
  ChatSession::Saved saved;
  KVANT_ASSIGN(saved.system, TakeString(json, path, "system"));
  if (same_model) {
    KVANT_ASSIGN(saved.template_ids, TakeIds(json, path, "template_ids", model));
  }
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array()) {
    return MakeError(ErrorCode::kCorrupt, "{}: messages: expected an array", path);
  }
  for (const Json& message : *messages) {
    Json known = message;
    if (!same_model && known.is_object()) {  // ids of another vocabulary mean nothing
      known["ids"] = Json::array();
      known["begin"] = -1;
    }
    KVANT_ASSIGN(ChatEntry entry, TakeEntry(known, path, model, std::ssize(saved.template_ids)));
    saved.entries.push_back(std::move(entry));
  }
  KVANT_ASSIGN(saved.forgotten, TakeNumber(json, path, "forgotten", 0, std::ssize(saved.entries)));
  KVANT_ASSIGN(saved.answers, TakeNumber(json, path, "answers", 0, INT64_MAX / 2));
  return saved;
}

}  // namespace

Status SaveChat(const ChatSession& session, const std::string& path, std::string* note) {
  note->clear();
  const ChatSession::Saved saved = session.State();
  const Model& model = session.model();
  bool tokens = false;
  if (session.held_tokens() > 0) {
    const SequenceId sequence = session.sequence();
    const Status status = session.runner().Save(TokensPath(path), {&sequence, 1});
    if (!status.ok() && status.error().code == ErrorCode::kIo) return status;
    if (!status.ok()) *note = status.error().message;
    tokens = status.ok();
  }
  Json json;
  json["kvant_chat"] = kChatFileVersion;
  json["fingerprint"] = FingerprintText(model);
  json["tokens"] = tokens;
  json["system"] = saved.system;
  json["forgotten"] = saved.forgotten;
  json["answers"] = saved.answers;
  json["messages"] = Json::array();
  for (const ChatEntry& entry : saved.entries) {
    Json message = {{"role", entry.message.role}, {"content", entry.message.content}};
    if (entry.message.role == "assistant") {
      message["reasoning"] = entry.message.reasoning;
      message["ids"] = entry.ids;
      message["begin"] = entry.begin;
    }
    json["messages"].push_back(std::move(message));
  }
  json["template_ids"] = saved.template_ids;
  const std::string text = Dump(json) + "\n";
  KVANT_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVANT_TRY(file.Write(text.data(), text.size()));
  return file.Commit();
}

Status LoadChat(const std::string& path, ChatSession& session, std::string* note) {
  note->clear();
  KVANT_ASSIGN(const Json json, ReadJson(path));
  KVANT_ASSIGN(const std::string fingerprint, TakeString(json, path, "fingerprint"));
  const bool same_model = fingerprint == FingerprintText(session.model());
  KVANT_ASSIGN(ChatSession::Saved saved, TakeSaved(json, path, session.model(), same_model));
  const auto tokens = json.find("tokens");
  const bool has_tokens = same_model && tokens != json.end() && *tokens == true;
  const Status status =
      session.Restore(std::move(saved), has_tokens ? TokensPath(path) : std::string());
  if (!status.ok()) {
    *note = status.error().message;
  } else if (!same_model) {
    *note = fmt::format("{}: saved with another model", path);
  }
  return {};
}

}  // namespace kvant::tools
