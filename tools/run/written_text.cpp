#include "tools/run/written_text.h"

#include <algorithm>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/model_defaults.h"
#include "tools/options/frames_file.h"

namespace kvant::tools {

Result<std::vector<TokenId>> FirstWritten(const TranslationOptions& options, const Model& model,
                                          const Translation& translation) {
  std::vector<TokenId> tokens;
  const std::optional<std::string>& prefix = options.prefix;
  if (prefix.has_value() && !model.frame_shape().has_value()) {
    KVANT_ASSIGN(tokens, EncodeTarget(model, translation, *prefix, TargetEnd::kOpen));
  } else if (translation.first) {
    tokens.push_back(*translation.first);
  }
  if (!prefix.has_value()) {
    const auto& own = options.first_tokens;
    tokens.insert(tokens.end(), own.begin(), own.end());
  } else if (model.frame_shape().has_value()) {
    KVANT_ASSIGN(const auto more,
                 model.tokenizer().Encode(*prefix, {.add_special = false, .parse_special = true}));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (!tokens.empty()) return tokens;
  return MakeError(ErrorCode::kInvalid,
                   "{}: the file names no token that texts begin with; expected --prefix",
                   model.file().path());
}

Result<WrittenText> ReadWritten(const TranslationOptions& options, const FramesOptions& frames,
                                const Model& model, const std::optional<std::string>& text) {
  WrittenText out;
  Translation translation;
  translation.first = model.decoder_start();
  if (frames.file.has_value()) {
    KVANT_ASSIGN(out.frames, ReadFrames(*frames.file, model));
  } else {
    KVANT_ASSIGN(translation, MakeTranslation(model, options.languages));
    KVANT_ASSIGN(out.source, EncodeSource(model, translation, text.value_or("")));
  }
  KVANT_ASSIGN(out.first, FirstWritten(options, model, translation));
  return out;
}

Status ChooseLanguage(const TranslationOptions& options, Runner& runner, SequenceId sequence,
                      std::vector<TokenId>& first) {
  const auto open = std::ranges::find(first, kOpenLanguage);
  const std::optional<std::string>& name = options.languages.source;
  if (!name.has_value() && open == first.end()) return {};
  KVANT_ASSIGN(const Languages languages, ReadLanguages(runner.model()));
  TokenId language = 0;
  if (name.has_value()) {
    KVANT_ASSIGN(language, FindLanguage(runner.model(), languages, *name));
  } else {
    KVANT_ASSIGN(language, LikeliestLanguage(runner, languages, sequence, first.front()));
  }
  const bool has_another =
      first.size() > 1 && std::ranges::find(languages.tokens, first[1]) != languages.tokens.end();
  if (open != first.end()) {
    *open = language;
  } else if (has_another) {
    first[1] = language;
  } else {
    first.insert(first.begin() + 1, language);
  }
  return {};
}

}  // namespace kvant::tools
