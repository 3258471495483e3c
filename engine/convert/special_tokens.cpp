#include "engine/convert/special_tokens.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "engine/tokenizer/kinds.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::GgufWriter;
using formats::Json;
using formats::JsonText;

constexpr size_t kTemplateBytesMax = size_t{16} << 20;

// A kind of special token: its name in the folder's files and its key in GGUF.
struct SpecialKind {
  std::string_view name;
  std::string_view gguf_name;
  std::optional<int32_t> Vocabulary::*own;  // what the vocabulary's own files say
  // Whether the vocabulary says that texts have the token around them.
  std::optional<bool> Vocabulary::*added = nullptr;
};

constexpr SpecialKind kKinds[] = {
    {"bos", "bos_token_id", &Vocabulary::bos, &Vocabulary::add_bos},
    {"eos", "eos_token_id", &Vocabulary::eos, &Vocabulary::add_eos},
    {"unk", "unknown_token_id", &Vocabulary::unk},
    {"sep", "seperator_token_id", &Vocabulary::sep},  // spelt so in GGUF
    {"pad", "padding_token_id", &Vocabulary::pad},
    {"cls", "cls_token_id", &Vocabulary::cls},
    {"mask", "mask_token_id", &Vocabulary::mask},
};

// Tokens that end a turn or a message have keys of their own besides eos. Readers also know the
// usual ones by their texts.
constexpr std::string_view kTurnEnds[] = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",
                                          "▁<EOT>"};
constexpr std::string_view kMessageEnds[] = {"<|eom_id|>"};

std::string GgufKey(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

Result<JsonObject> ReadOptional(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return JsonObject(path);
  return JsonObject::Read(path);
}

// "eos_token": "</s>" or {"content": "</s>", ...}; "" if it is neither.
std::string TokenText(const JsonObject& object, const std::string& key) {
  const Json* value = object.Find(key);
  if (value == nullptr) return "";
  return value->is_string() ? value->get<std::string>() : JsonText(*value, "content");
}

// "eos_token_id": 2 or [2, 32000]. Negative ids mean none.
Result<std::vector<int32_t>> TokenIds(const JsonObject& object, const std::string& key,
                                      const Vocabulary& vocabulary) {
  std::vector<int32_t> ids;
  const Json* value = object.Find(key);
  if (value == nullptr) return ids;
  const Json list = value->is_array() ? *value : Json(Json::array_t{*value});
  for (const Json& id : list) {
    if (!id.is_number_integer()) return object.Wrong(key, "an id or an array of ids");
    if (id.is_number_unsigned() && id.get<uint64_t>() < vocabulary.tokens.size()) {
      ids.push_back(id.get<int32_t>());
    } else if (id.is_number_unsigned()) {
      Log(LogLevel::kWarning,
          fmt::format("{} {} is left out: there are only {} tokens", object.Where(key),
                      formats::Shown(id), vocabulary.tokens.size()));
    }
  }
  return ids;
}

// Looks in order of trust: the tokenizer's settings by text, the model's by id, the vocabulary's
// own.
Result<std::optional<int32_t>> FindSpecial(const SpecialKind& kind, const FolderConfig& config,
                                           const Vocabulary& vocabulary) {
  // Folders of RWKV have the ids of other tokenizers in their settings.
  if (vocabulary.model == kRwkvKind) return vocabulary.*kind.own;
  // A vector depends on the tokens around its text, whatever other files call end and beginning.
  const bool around = kind.added != nullptr && (vocabulary.*kind.added).value_or(false);
  if (config.makes_vectors && around) return vocabulary.*kind.own;
  const std::string text_key = fmt::format("{}_token", kind.name);
  for (const JsonObject* object : {&config.tokenizer, &config.special_tokens}) {
    const std::string text = TokenText(*object, text_key);
    const auto id = text.empty() ? std::nullopt : vocabulary.Find(text);
    if (id) return id;
  }
  const std::string id_key = fmt::format("{}_token_id", kind.name);
  for (const JsonObject* object : {&config.model, &config.generation}) {
    KVANT_ASSIGN(const std::vector<int32_t> ids, TokenIds(*object, id_key, vocabulary));
    if (!ids.empty()) return std::optional<int32_t>(ids.front());
  }
  return vocabulary.*kind.own;
}

// Whether a special token is added to every text: the tokenizer's settings, or what the template of
// tokenizer.json does with this very token.
Status AddFlag(std::string_view name, const FolderConfig& config, std::optional<bool> own_flag,
               bool same_token, GgufWriter& writer) {
  const std::string key = fmt::format("add_{}_token", name);
  KVANT_ASSIGN(std::optional<bool> flag, config.tokenizer.Bool(key));
  if (!flag && (own_flag == false || same_token)) flag = own_flag;
  if (flag) writer.AddBool(GgufKey(key), *flag);
  return {};
}

// The keys of eot and eom for the ids of eos lists that are not eos itself.
Status AddOtherEnds(const FolderConfig& config, const Vocabulary& vocabulary,
                    std::optional<int32_t> eos, GgufWriter& writer) {
  std::vector<int32_t> ends;
  for (const JsonObject* object : {&config.generation, &config.model}) {
    KVANT_ASSIGN(const std::vector<int32_t> ids, TokenIds(*object, "eos_token_id", vocabulary));
    for (const int32_t id : ids) {
      const bool is_known = id == eos || std::find(ends.begin(), ends.end(), id) != ends.end();
      if (!is_known) ends.push_back(id);
    }
  }
  struct EndKey {
    std::string_view gguf_name;
    std::span<const std::string_view> texts;
    std::optional<int32_t> id;
  };
  EndKey keys[] = {{"eot_token_id", kTurnEnds, {}}, {"eom_token_id", kMessageEnds, {}}};
  const auto text = [&](int32_t id) -> const std::string& {
    return vocabulary.tokens[static_cast<size_t>(id)];
  };
  // First the tokens that belong under a key by their text, then the others under keys that are
  // left.
  for (const bool by_text : {true, false}) {
    for (EndKey& key : keys) {
      const auto fits = [&](int32_t id) {
        return !by_text ||
               std::find(key.texts.begin(), key.texts.end(), text(id)) != key.texts.end();
      };
      const auto id = std::find_if(ends.begin(), ends.end(), fits);
      if (key.id || id == ends.end()) continue;
      key.id = *id;
      ends.erase(id);
    }
  }
  for (const EndKey& key : keys) {
    if (key.id) writer.AddU32(GgufKey(key.gguf_name), static_cast<uint32_t>(*key.id));
  }
  for (const int32_t id : ends) {
    Log(LogLevel::kWarning, fmt::format("{}: GGUF has no key left for the end token {} ({})",
                                        config.generation.where(), id, formats::Quoted(text(id))));
  }
  return {};
}

Result<std::string> ReadTemplateFile(const std::string& path) {
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() > kTemplateBytesMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: the file has {} bytes, expected at most {}", path,
                     bytes.size(), kTemplateBytesMax);
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// A template's name as the end of a key: letters, digits and "_".
std::string KeyEnding(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c >= 0x80 || std::isalnum(c) == 0; },
      '_');
  return name;
}

// Name -> template; "default" is the one without a name.
Result<std::map<std::string, std::string>> ReadTemplates(const FolderConfig& config) {
  constexpr const char* kKey = "chat_template";
  std::map<std::string, std::string> templates;
  const Json* value = config.tokenizer.Find(kKey);
  if (value != nullptr && value->is_string()) {
    templates["default"] = value->get<std::string>();
  } else if (value != nullptr && value->is_array()) {
    for (const Json& entry : *value) {
      const std::string name = JsonText(entry, "name");
      const std::string text = JsonText(entry, "template");
      if (name.empty() || text.empty()) {
        return config.tokenizer.Wrong(kKey, "objects with name and template");
      }
      templates[name] = text;
    }
  } else if (value != nullptr) {
    return config.tokenizer.Wrong(kKey, "a text or an array");
  }
  // Newer folders keep it in a file, which replaces the other one.
  const std::string path = PathIn(config.folder, "chat_template.jinja");
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    KVANT_ASSIGN(templates["default"], ReadTemplateFile(path));
  }
  return templates;
}

// The settings of the text model, which models that read more than text keep apart, among the
// others; the class is that of the whole model, and so is an output that is the embedding.
Result<JsonObject> WithTextModel(JsonObject model) {
  KVANT_ASSIGN(const auto text, model.Object("text_config"));
  if (!text) return model;
  const JsonObject merged = model.With(*text);
  const formats::Json* classes = model.Find("architectures");
  if (classes == nullptr) return merged;
  constexpr const char* kTied = "tie_word_embeddings";
  formats::Json own = {{"architectures", *classes}};
  KVANT_ASSIGN(const auto tied, model.Bool(kTied));
  if (tied.value_or(false)) own[kTied] = true;
  KVANT_ASSIGN(const JsonObject of_whole, JsonObject::Parse(own.dump(), model.where()));
  return merged.With(of_whole);
}

}  // namespace

Result<FolderConfig> FolderConfig::Read(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return MakeError(ErrorCode::kIo, "{}: {}", folder,
                     std::filesystem::exists(folder, error)
                         ? "expected a folder with config.json and safetensors files"
                         : "no such folder");
  }
  KVANT_ASSIGN(auto modules, EmbeddingModules::Read(folder));
  const std::string& of_model = modules ? modules->model_folder : folder;
  KVANT_ASSIGN(FolderConfig config, ReadWithoutModel(of_model));
  KVANT_ASSIGN(config.model, JsonObject::Read(PathIn(of_model, "config.json")));
  KVANT_ASSIGN(config.model, WithTextModel(std::move(config.model)));
  config.modules = std::move(modules);
  config.named_folder = folder;
  return config;
}

Result<FolderConfig> FolderConfig::ReadWithoutModel(const std::string& folder) {
  KVANT_ASSIGN(JsonObject generation, ReadOptional(PathIn(folder, "generation_config.json")));
  KVANT_ASSIGN(JsonObject tokenizer, ReadOptional(PathIn(folder, "tokenizer_config.json")));
  KVANT_ASSIGN(JsonObject special, ReadOptional(PathIn(folder, "special_tokens_map.json")));
  FolderConfig config{folder, JsonObject(PathIn(folder, "config.json")), std::move(generation),
                      std::move(tokenizer), std::move(special)};
  config.named_folder = folder;
  return config;
}

Status AddSpecialTokens(const FolderConfig& config, const Vocabulary& vocabulary,
                        GgufWriter& writer) {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  for (const SpecialKind& kind : kKinds) {
    KVANT_ASSIGN(const std::optional<int32_t> id, FindSpecial(kind, config, vocabulary));
    if (kind.name == "bos") bos = id;
    if (kind.name == "eos") eos = id;
    if (id) writer.AddU32(GgufKey(kind.gguf_name), static_cast<uint32_t>(*id));
  }
  KVANT_TRY(AddOtherEnds(config, vocabulary, eos, writer));
  KVANT_TRY(AddFlag("bos", config, vocabulary.add_bos, bos && bos == vocabulary.bos, writer));
  KVANT_TRY(AddFlag("eos", config, vocabulary.add_eos, eos && eos == vocabulary.eos, writer));
  if (config.makes_vectors && vocabulary.add_sep) {
    writer.AddBool(GgufKey("add_sep_token"), *vocabulary.add_sep);
  }
  return {};
}

Status AddChatTemplates(const FolderConfig& config, GgufWriter& writer) {
  KVANT_ASSIGN(const auto templates, ReadTemplates(config));
  std::vector<std::string> names;
  for (const auto& [name, text] : templates) {
    if (name == "default") {
      writer.AddString("tokenizer.chat_template", text);
      continue;
    }
    names.push_back(KeyEnding(name));
    writer.AddString(fmt::format("tokenizer.chat_template.{}", names.back()), text);
  }
  if (!names.empty()) writer.AddStrings("tokenizer.chat_templates", names);
  return {};
}

}  // namespace kvant::convert
