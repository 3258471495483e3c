#include "tools/serve/answer/served_tools.h"

#include <fmt/format.h>

#include "base/result.h"
#include "engine/text/answer_text.h"

namespace kvant::tools {

const Result<ToolFormat>& ServedTools::format() {
  std::call_once(found_, [this] {
    if (!template_.ok()) {
      format_.emplace(template_.error());
      return;
    }
    format_.emplace(DetectToolFormat(*template_));
    marks_are_control_ = format_->ok() && HasControlMarks(**format_, tokenizer_);
  });
  return *format_;
}

Result<std::shared_ptr<const Grammar>> ServedTools::GrammarOf(const std::string& tools,
                                                              const ToolChoice& choice) {
  const std::string key = fmt::format("{} {} {}\n{}", static_cast<int>(choice.kind),
                                      choice.is_parallel, choice.name, tools);
  {
    const std::lock_guard lock(mutex_);
    for (auto entry = grammars_.begin(); entry != grammars_.end(); ++entry) {
      if (entry->first != key) continue;
      grammars_.splice(grammars_.begin(), grammars_, entry);
      return grammars_.front().second;
    }
  }
  const Result<ToolFormat>& found = format();
  if (!found.ok()) return found.error();
  KVANT_ASSIGN(const GrammarText text, ToolGrammar(*found, tools, choice, tokenizer_));
  KVANT_ASSIGN(auto grammar, Grammar::Create(text, tokenizer_));
  const std::lock_guard lock(mutex_);
  grammars_.emplace_front(key, grammar);
  if (grammars_.size() > kGrammarsMax) grammars_.pop_back();
  return grammar;
}

}  // namespace kvant::tools
