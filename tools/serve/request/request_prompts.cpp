// Prompts, and single fields of requests that are read without a list.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

ApiError WrongType(const std::string& name, std::string_view expected, const RequestJson& found) {
  return WrongValue(name, fmt::format("expected {}, found {}", expected, formats::Shown(found)));
}

ApiError WrongMember(const std::string& name, std::string_view expected, const RequestJson* found) {
  if (found != nullptr) return WrongType(name, expected, *found);
  return WrongValue(name, fmt::format("expected {}, found nothing", expected));
}

Refusal ReadIds(const RequestJson& value, const std::string& name, int32_t vocab_size,
                std::vector<TokenId>* out) {
  if (!value.is_array()) return WrongType(name, "a list of token ids", value);
  out->reserve(value.size());
  for (const RequestJson& id : value) {
    const bool is_id = id.is_number_integer() && id >= 0 && id < vocab_size;
    if (!is_id) return WrongType(name, fmt::format("ids from 0 to {}", vocab_size - 1), id);
    out->push_back(id.get<TokenId>());
  }
  return {};
}

Refusal ReadPrompts(const RequestJson& body, const std::string& name, int32_t vocab_size,
                    std::vector<PromptField>* out) {
  const RequestJson* const prompt = Member(body, name);
  if (prompt == nullptr) return WrongValue(name, "expected a text or token ids, found nothing");
  const auto take = [&](const RequestJson& one) -> Refusal {
    PromptField& field = out->emplace_back();
    if (one.is_string()) {
      field.text = one.get<std::string>();
      return {};
    }
    field.is_text = false;
    if (one.is_array() && one.empty()) return WrongValue(name, "a list of token ids is empty");
    return ReadIds(one, name, vocab_size, &field.ids);
  };
  if (!prompt->is_array()) {
    if (!prompt->is_string()) return WrongType(name, "a text or token ids", *prompt);
    return take(*prompt);
  }
  if (prompt->empty()) return WrongValue(name, "the list is empty");
  const bool is_list_of_ids = !prompt->front().is_string() && !prompt->front().is_array();
  if (is_list_of_ids) return take(*prompt);
  if (prompt->size() > kPromptsMax) {
    return WrongValue(
        name, fmt::format("expected at most {} texts, found {}", kPromptsMax, prompt->size()));
  }
  for (const RequestJson& one : *prompt) KVANT_REFUSE(take(one));
  return {};
}

Refusal ReadText(const RequestJson& body, std::string_view name, std::string* out) {
  const RequestJson* const text = Member(body, name);
  if (text == nullptr || !text->is_string()) {
    return WrongType(std::string(name), "a text", text == nullptr ? RequestJson() : *text);
  }
  *out = text->get<std::string>();
  return {};
}

Refusal ReadFlag(const RequestJson& body, std::string_view name, bool* out) {
  const RequestJson* const flag = Member(body, name);
  if (flag == nullptr) return {};
  if (!flag->is_boolean()) return WrongType(std::string(name), "true or false", *flag);
  *out = flag->get<bool>();
  return {};
}

}  // namespace kvant::tools
