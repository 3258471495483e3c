#include "tools/serve/request/dialect_names.h"

#include <utility>

namespace kvant::tools {

Refusal InNames(Refusal refusal, std::span<const DialectName> names) {
  if (!refusal.has_value()) return refusal;
  for (const DialectName& name : names) {
    std::string& param = refusal->param;
    const bool is_it = param.starts_with(name.chat) &&
                       (param.size() == name.chat.size() || param[name.chat.size()] == '.' ||
                        param[name.chat.size()] == '[');
    if (!is_it) continue;
    if (refusal->message.starts_with(param)) {
      refusal->message.replace(0, name.chat.size(), name.own);
    }
    param.replace(0, name.chat.size(), name.own);
    break;
  }
  return refusal;
}

}  // namespace kvant::tools
