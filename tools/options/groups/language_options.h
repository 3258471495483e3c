// --source-lang and --target-lang, of models that translate between languages.
#pragma once

#include "engine/text/languages.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

void AddLanguageOptions(OptionList& list, LanguageNames& names);

}  // namespace kvant::tools
