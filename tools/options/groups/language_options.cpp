#include "tools/options/groups/language_options.h"

namespace kvant::tools {

void AddLanguageOptions(OptionList& list, LanguageNames& names) {
  list.Text("--source-lang", &names.source, "LANGUAGE",
            "For translators of several languages: the source's language, such as de_DE or de");
  list.Text("--target-lang", &names.target, "LANGUAGE",
            "For translators of several languages: the translation's language, which some models "
            "read in front of the source");
}

}  // namespace kvant::tools
