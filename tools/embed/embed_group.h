// The options that embed and rerank share, and the embedder that is opened with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/embed.h"
#include "tools/embed/text_input.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"

namespace kvant::tools {

struct EmbedGroup {
  ModelGroup model;
  SessionGroup threads;  // these and their places alone
  std::optional<int64_t> context;
  int64_t batch = kDefaultEmbedRows;
  bool truncate = false;

  void Add(OptionList& list);  // all but the model's path, which comes last

  TooLong too_long() const { return truncate ? TooLong::kCut : TooLong::kRefused; }
  Result<std::unique_ptr<Embedder>> Open(const std::string& path,
                                         std::optional<Pooling> pooling) const;
};

// Puts the place of a text in front of an error's message.
Error At(const InputText& text, const Error& error);

// Texts that one call gets, so that results appear as they are made.
inline constexpr size_t kTextsPerCall = 512;

}  // namespace kvant::tools
