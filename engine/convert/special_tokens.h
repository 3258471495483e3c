// Special tokens and chat templates: what tokenizer_config.json, special_tokens_map.json,
// config.json, generation_config.json and chat_template.jinja say beyond the vocabulary itself.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/convert/embedding_modules.h"
#include "engine/convert/vocabulary.h"
#include "formats/gguf_writer.h"
#include "formats/json_object.h"

namespace kvant::convert {

using formats::JsonObject;

// The small files of a folder; an absent file is an empty object.
struct FolderConfig {
  std::string folder;  // with the model
  JsonObject model;    // config.json, which must be there
  JsonObject generation;
  JsonObject tokenizer;
  JsonObject special_tokens;
  // The contents of files that are read as if the folder had them, by their names.
  std::map<std::string, std::shared_ptr<const formats::Json>, std::less<>> stand_ins = {};
  std::optional<EmbeddingModules> modules = {};  // of sentence-transformers
  std::string named_folder =
      {};                      // the one to be converted; sentence-transformers' may hold `folder`
  bool makes_vectors = false;  // or scores: the model is no writer of texts

  static Result<FolderConfig> Read(const std::string& folder);
  // A folder that need not have a config.json; `model` is empty.
  static Result<FolderConfig> ReadWithoutModel(const std::string& folder);
};

// Writes the ids of the special tokens, whether they are added to texts, and the other tokens that
// end a generation.
Status AddSpecialTokens(const FolderConfig& config, const Vocabulary& vocabulary,
                        formats::GgufWriter& writer);

// Writes tokenizer.chat_template, and templates of other names under their names.
Status AddChatTemplates(const FolderConfig& config, formats::GgufWriter& writer);

}  // namespace kvant::convert
