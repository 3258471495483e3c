// A small model of random weights that reads frames of sound and has Whisper's tokens: text 0 to
// 19, the end 20, the start 21, <|en|> 22, <|de|> 23, tasks and others to 29, times from 30 on.
#pragma once

#include <utility>

#include "tests/engine/arch/seeded_model.h"

namespace kvant::test {

enum class SmallLanguages : uint8_t { kTwo, kEnglishAlone };

inline void MakeSmallWhisper(SeededModel& model, SmallLanguages languages = SmallLanguages::kTwo) {
  const char* names[] = {"<|endoftext|>",   "<|startoftranscript|>", "<|en|>",
                         "<|de|>",          "<|translate|>",         "<|transcribe|>",
                         "<|startoflm|>",   "<|startofprev|>",       "<|nospeech|>",
                         "<|notimestamps|>"};
  int id = 20;
  const auto add = [&](const std::string& text) {
    model.added_tokens.push_back({{"id", id++}, {"content", text}, {"special", true}});
  };
  for (const char* name : names) add(name);
  for (int time = 0; time < 34; ++time) add(fmt::format("<|0.{:02}|>", 2 * time));
  model.config["eos_token_id"] = 20;
  model.config["bos_token_id"] = 20;
  model.config["pad_token_id"] = 20;
  model.config["decoder_start_token_id"] = 21;
  model.generation = {{"eos_token_id", 20}};
  if (languages == SmallLanguages::kTwo) {
    model.generation["lang_to_id"] = {{"<|en|>", 22}, {"<|de|>", 23}};
  }
}

}  // namespace kvant::test
