// One streamed text of kvant run: how it takes up what a file has saved, and how it is saved.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/generator.h"
#include "kvant/session.h"
#include "tools/run/options/run_options.h"
#include "tools/run/run_session.h"

namespace kvant::tools {

struct TextRun {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Session> session;
  std::vector<TokenId> prompt;
  bool may_save_part = true;  // a part of the prompt may be saved without anything being lost
};

// Loads the saved text and puts the prompt behind it. With an encoder, the source is read, or is
// that of the saved text, which goes on at its end. `saved`: null without a file.
Status TakeUp(const RunOptions& options, const std::optional<std::string>& text,
              const SessionLock* saved, TextRun* run);

// Sets the processors that force and ban tokens, for models with an encoder. They act on the text
// from its first token on, which may be a saved one.
Status SetProcessors(const RunOptions& options, const TextRun& run, GenerateOptions* generate);

// Saves the text as it was shown. Computes the tokens that were shown and are not in the cache yet,
// and drops guesses of the draft behind the end of the text.
Status SaveText(const ContinueRunOptions& options, const Generation& generation, TextRun& run);

}  // namespace kvant::tools
