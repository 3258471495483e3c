// The calls that a served model can write: the format of its template, and grammars.
//
// A client sends its tools with each request, so that grammars are kept: a grammar learns which
// tokens fit as it is used.
//
// Thread-safety: any thread may call.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "kvant/chat.h"
#include "kvant/grammar.h"
#include "kvant/result.h"
#include "kvant/tokenizer.h"
#include "kvant/tool_calls.h"

namespace kvant::tools {

class ServedTools {
 public:
  // Both outlive this object.
  ServedTools(const Result<ChatTemplate>& chat_template, const Tokenizer& tokenizer)
      : template_(chat_template), tokenizer_(tokenizer) {}

  // The format of the template; an error where there is no template.
  const Result<ToolFormat>& format();
  // Whether marks of the format are control tokens, which are then part of the text.
  bool marks_are_control() const { return marks_are_control_; }

  // The grammar of answers with these tools, see ToolGrammar.
  Result<std::shared_ptr<const Grammar>> GrammarOf(const std::string& tools,
                                                   const ToolChoice& choice);

 private:
  static constexpr size_t kGrammarsMax = 8;

  const Result<ChatTemplate>& template_;
  const Tokenizer& tokenizer_;
  std::once_flag found_;
  std::optional<Result<ToolFormat>> format_;
  bool marks_are_control_ = false;

  std::mutex mutex_;
  // The one used last comes first.
  std::list<std::pair<std::string, std::shared_ptr<const Grammar>>> grammars_;
};

}  // namespace kvant::tools
