#include "tools/serve/request/native_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "kvant/prompt.h"

namespace kvant::tools {
namespace {

constexpr int64_t kIndentMax = 1 << 20;
constexpr int64_t kMillisecondsMax = int64_t{24} * 3600 * 1000;
constexpr size_t kMembersMax = 256;

Refusal ReadWholeNumber(const RequestJson& body, const std::string& name, int64_t max,
                        int64_t* out) {
  const RequestJson* const number = Member(body, name);
  if (number == nullptr) return {};
  const bool is_right =
      number->is_number_integer() && *number >= 0 && *number <= static_cast<uint64_t>(max);
  if (!is_right) return WrongType(name, fmt::format("a whole number from 0 to {}", max), *number);
  *out = number->get<int64_t>();
  return {};
}

Refusal ReadMembers(const RequestJson& body, std::vector<std::string>* out) {
  const std::string name = "response_fields";
  const RequestJson* const members = Member(body, name);
  if (members == nullptr) return {};
  if (!members->is_array() || members->size() > kMembersMax) {
    return WrongType(name, fmt::format("a list of at most {} names", kMembersMax), *members);
  }
  for (const RequestJson& one : *members) {
    if (!one.is_string()) return WrongType(name, "names of members", one);
    out->push_back(one.get<std::string>());
  }
  return {};
}

// Texts and ids of one prompt, in turn. Only a text at the beginning has BOS in front.
Refusal ReadMixed(const RequestJson& parts, const Tokenizer& tokenizer, int32_t vocab_size,
                  std::vector<TokenId>* out) {
  const std::string name = "prompt";
  if (parts.empty()) return WrongValue(name, "a list of tokens is empty");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_string()) {
      KVANT_REFUSE(ReadIds(RequestJson::array({parts[i]}), name, vocab_size, out));
      continue;
    }
    const auto text = parts[i].get<std::string>();
    auto ids =
        i == 0 ? PromptTokens(tokenizer, text) : tokenizer.Encode(text, {.parse_special = true});
    if (!ids.ok()) return ApiErrorOf(ids.error(), name);
    out->insert(out->end(), ids->begin(), ids->end());
  }
  return {};
}

Refusal ReadPrompt(const RequestJson& prompt, const Tokenizer& tokenizer, int32_t vocab_size,
                   std::vector<TokenId>* out) {
  const std::string name = "prompt";
  if (prompt.is_array()) return ReadMixed(prompt, tokenizer, vocab_size, out);
  if (prompt.is_object()) {
    const RequestJson* const data = Member(prompt, "multimodal_data");
    if (data != nullptr && !data->empty()) {
      return NotSupported(name + ".multimodal_data", "images and sound are not there", 501);
    }
    const RequestJson* const text = Member(prompt, "prompt_string");
    if (text == nullptr || !text->is_string()) {
      return WrongType(name + ".prompt_string", "a text", text == nullptr ? RequestJson() : *text);
    }
    return ReadMixed(RequestJson::array({*text}), tokenizer, vocab_size, out);
  }
  if (!prompt.is_string()) return WrongType(name, "a text or token ids", prompt);
  return ReadMixed(RequestJson::array({prompt}), tokenizer, vocab_size, out);
}

}  // namespace

std::span<const std::string_view> NativeNames() {
  static constexpr auto names = std::to_array<std::string_view>(
      {"return_tokens", "response_fields", "t_max_predict_ms", "n_indent", "input_prefix",
       "input_suffix", "input_extra",
       // Without effect: contexts are not shifted, and nobody limits the time of a prompt.
       "n_keep", "n_discard", "t_max_prompt_ms"});
  return names;
}

Refusal ReadNativeFields(const RequestJson& body, TextFields& fields, NativeFields* out) {
  KVANT_REFUSE(ReadFlag(body, "return_tokens", &out->return_tokens));
  KVANT_REFUSE(ReadMembers(body, &out->members));
  KVANT_REFUSE(ReadWholeNumber(body, "n_indent", kIndentMax, &fields.indent));
  int64_t milliseconds = 0;
  KVANT_REFUSE(ReadWholeNumber(body, "t_max_predict_ms", kMillisecondsMax, &milliseconds));
  fields.seconds_max = static_cast<double>(milliseconds) / 1000;
  if (fields.after_sampling && fields.best_of > fields.samples) {
    return NotSupported("post_sampling_probs", "best_of compares probabilities of the model");
  }
  if (fields.echo) return NotSupported("echo", "/v1/completions shows prompts");
  if (!fields.suffix.empty()) return NotSupported("suffix", "/infill fills gaps");
  // Without a number of likeliest tokens there is no list of tokens.
  if (fields.log_probs == 0) fields.log_probs.reset();
  return {};
}

Refusal ReadNativePrompts(const RequestJson& body, const Tokenizer& tokenizer, int32_t vocab_size,
                          std::vector<std::vector<TokenId>>* out) {
  const std::string name = "prompt";
  const RequestJson* const prompt = Member(body, name);
  if (prompt == nullptr) return WrongValue(name, "expected a text or token ids, found nothing");
  const auto is_number = [](const RequestJson& one) { return one.is_number(); };
  const bool is_list =
      prompt->is_array() && !prompt->empty() && std::ranges::none_of(*prompt, is_number);
  if (!is_list) {
    return ReadPrompt(*prompt, tokenizer, vocab_size, &out->emplace_back());
  }
  if (prompt->size() > kPromptsMax) {
    return WrongValue(
        name, fmt::format("expected at most {} prompts, found {}", kPromptsMax, prompt->size()));
  }
  for (const RequestJson& one : *prompt) {
    KVANT_REFUSE(ReadPrompt(one, tokenizer, vocab_size, &out->emplace_back()));
  }
  return {};
}

}  // namespace kvant::tools
