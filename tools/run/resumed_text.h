// One streamed text of kvant run: how it takes up what a file has saved, and how it is saved.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/generator.h"
#include "kvant/grammar.h"
#include "kvant/session.h"
#include "tools/run/options/run_options.h"
#include "tools/run/run_session.h"

namespace kvant::tools {

struct TextRun {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Session> session;
  std::vector<TokenId> prompt;
  std::shared_ptr<const Grammar> grammar;  // null: none is asked for
  int64_t grammar_begin = 0;               // tokens in front of what it describes
  std::string note;                        // of the file
  bool may_save_part = true;  // a part of the prompt may be saved without anything being lost
};

// Loads the saved text and puts the prompt behind it. With an encoder, the source is read, or is
// that of the saved text, which goes on at its end. `saved`: null without a file.
Status TakeUp(const RunOptions& options, const std::optional<std::string>& text,
              const SessionLock* saved, TextRun* run);

// Goes on inside the grammar of the saved text where nothing new comes behind it and no other
// grammar is asked for. Else the grammar that is asked for, if any, begins behind the prompt.
Status TakeUpGrammar(const RunOptions& options, TextRun* run);

// Sets the processors that force and ban tokens, for models with an encoder. They act on the text
// from its first token on, which may be a saved one.
Status SetProcessors(const RunOptions& options, const TextRun& run, GenerateOptions* generate);

// Saves the text as it was shown, and the grammar in the middle of which it stops. Computes the
// tokens that were shown and are not in the cache yet, and drops guesses of the draft behind the
// end of the text.
Status SaveText(const ContinueRunOptions& options, const Generation& generation, TextRun& run);

}  // namespace kvant::tools
