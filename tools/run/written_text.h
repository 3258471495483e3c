// The text that a model with an encoder writes: its source, and the tokens that it begins with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/text/languages.h"
#include "kvant/model.h"
#include "kvant/runner.h"
#include "tools/run/options/frames_options.h"
#include "tools/run/options/translation_options.h"

namespace kvant::tools {

// The input of a model with an encoder, and the tokens that it writes first.
struct WrittenText {
  std::vector<TokenId> source;
  std::vector<float> frames;
  std::vector<TokenId> first;
};

// The tokens that the model writes first. The tokens of a --prefix stand behind the language.
Result<std::vector<TokenId>> FirstWritten(const TranslationOptions& options, const Model& model,
                                          const Translation& translation);
// `text`: nullopt where there are frames.
Result<WrittenText> ReadWritten(const TranslationOptions& options, const FramesOptions& frames,
                                const Model& model, const std::optional<std::string>& text);
// Puts the language into the first tokens where frames are read: what is asked for, or the
// likeliest one where the file leaves it open. The sequence has its source and no tokens.
Status ChooseLanguage(const TranslationOptions& options, Runner& runner, SequenceId sequence,
                      std::vector<TokenId>& first);

}  // namespace kvant::tools
