#include "tools/run/options/translation_options.h"

#include "tools/options/groups/language_options.h"

namespace kvant::tools {

void TranslationOptions::AddPrefix(OptionList& list) {
  list.Text("--prefix", &prefix, "TEXT",
            "For encoder-decoders: the beginning of the text that the model writes");
}

void TranslationOptions::AddLanguages(OptionList& list) { AddLanguageOptions(list, languages); }

}  // namespace kvant::tools
