// The list of keys that nobody may have read: it says which have no effect on what a model
// computes, and which have one that is not computed here.
//
// A key that llama.cpp or its converter knows has a row in key_rows.cpp, unless every family reads
// it. tests/engine/arch/unread_keys_test.cpp fails for one that has none.
#pragma once

#include <span>
#include <string_view>

#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"
#include "formats/gguf.h"

namespace kvant::arch {

// A key of a file that was not asked for.
struct UnreadKey {
  const Metadata& metadata;
  const ModelSpec& spec;
  const formats::GgufValue& value;
};

struct KeyRow {
  // Without the architecture; with "tokenizer." and others that belong to none. Where it ends in a
  // dot or an underscore it stands for all keys that begin with it.
  std::string_view name;
  // Says whether the key has no effect in this file.
  bool (*is_idle)(const UnreadKey& key);
  // With IsAlwaysIdle: why. Else what the key does, a clause before ", which is not computed here".
  std::string_view text;
};

// Whatever the value is.
bool IsAlwaysIdle(const UnreadKey& key);

// The row of a key, by its name without the architecture; null where there is none.
const KeyRow* FindKeyRow(std::string_view name);
std::span<const KeyRow> AllKeyRows();

}  // namespace kvant::arch
