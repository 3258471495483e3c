#include "tools/serve/request/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "engine/generate/samplers/stage.h"
#include "engine/limits.h"
#include "tools/serve/request/native_fields.h"
#include "tools/serve/request/schema_field.h"
#include "tools/serve/request/setting_names.h"
#include "tools/serve/request/trigger_fields.h"

namespace kvant::tools {
namespace {

using formats::Shown;

constexpr size_t kStopBytesMax = 4096;

enum class FieldType : uint8_t { kInteger, kNumber, kFlag, kText, kObject, kAny };

// A value that has the type and the limits of its row.
struct FieldValue {
  std::string name;
  const RequestJson& json;
  int64_t integer = 0;
  double number = 0;
  bool flag = false;
  std::string text = {};
};

struct FieldRow {
  std::string names;  // separated by commas; the first that is there counts
  FieldType type = FieldType::kAny;
  double min = 0;
  double max = 0;
  std::function<Refusal(const FieldValue&, TextFields&)> take;
  bool in_chat = true;
  bool in_completions = true;
};

constexpr double kNoLimit = std::numeric_limits<double>::max();
constexpr double kWholeMax = 9007199254740992;  // 2^53: exact in JSON of all programs

std::vector<std::string> SplitNames(std::string_view names) {
  std::vector<std::string> out;
  while (!names.empty()) {
    const std::string_view one = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), one.size() + 1));
    out.emplace_back(one);
  }
  return out;
}

Refusal CheckLimits(const FieldRow& row, const FieldValue& value, std::string_view what) {
  if (value.number >= row.min && value.number <= row.max) return {};
  if (row.max >= kWholeMax) {
    return WrongType(value.name, fmt::format("{} of {} or more", what, row.min), value.json);
  }
  return WrongType(value.name, fmt::format("{} from {} to {}", what, row.min, row.max), value.json);
}

// Checks a value against its row.
Refusal ReadValue(const FieldRow& row, FieldValue& value) {
  const RequestJson& json = value.json;
  switch (row.type) {
    case FieldType::kInteger:
      if (!json.is_number_integer() ||
          (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)) {
        return WrongType(value.name, "a whole number", json);
      }
      value.number = json.get<double>();
      KVANT_REFUSE(CheckLimits(row, value, "a whole number"));
      value.integer = json.get<int64_t>();
      return {};
    case FieldType::kNumber:
      if (!json.is_number()) return WrongType(value.name, "a number", json);
      value.number = json.get<double>();
      if (!std::isfinite(value.number)) return WrongType(value.name, "a finite number", json);
      return CheckLimits(row, value, "a number");
    case FieldType::kFlag:
      if (!json.is_boolean()) return WrongType(value.name, "true or false", json);
      value.flag = json.get<bool>();
      return {};
    case FieldType::kText:
      if (!json.is_string()) return WrongType(value.name, "a text", json);
      value.text = json.get<std::string>();
      return {};
    case FieldType::kObject:
      if (!json.is_object()) return WrongType(value.name, "an object", json);
      return {};
    case FieldType::kAny: return {};
  }
  return {};
}

// ---- What single fields set ---------------------------------------------------------------------

Refusal TakeStop(const FieldValue& value, TextFields& fields) {
  fields.stop_texts.clear();
  if (value.json.is_string()) {
    const auto text = value.json.get<std::string>();
    if (text.size() > kStopBytesMax) {
      return WrongValue(value.name, fmt::format("a text has more than {} bytes", kStopBytesMax));
    }
    if (!text.empty()) fields.stop_texts.push_back(text);
    return {};
  }
  if (!value.json.is_array()) return WrongType(value.name, "a text or a list of texts", value.json);
  if (value.json.size() > kStopTextsMax) {
    return WrongValue(value.name, fmt::format("expected at most {} texts, found {}", kStopTextsMax,
                                              value.json.size()));
  }
  for (const RequestJson& one : value.json) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty() ||
        one.get_ref<const std::string&>().size() > kStopBytesMax) {
      return WrongType(value.name, fmt::format("texts of 1 to {} bytes", kStopBytesMax), one);
    }
    fields.stop_texts.push_back(one.get<std::string>());
  }
  return {};
}

// A bias in its forms: a number, or false, which forbids the token.
Refusal ReadBias(const FieldValue& value, const RequestJson& json, float* bias) {
  if (json.is_boolean() && !json.get<bool>()) {
    *bias = -std::numeric_limits<float>::infinity();
    return {};
  }
  constexpr double kBiasMax = 1e6;
  if (!json.is_number() || !(std::abs(json.get<double>()) <= kBiasMax)) {
    return WrongType(value.name, "biases that are numbers, or false", json);
  }
  *bias = json.get<float>();
  return {};
}

// {"ID": BIAS, ...}, or [[ID or "TEXT", BIAS], ...] as llama-server has it. A token's number is
// compared with the vocabulary later.
Refusal TakeBiases(const FieldValue& value, TextFields& fields) {
  const auto take_id = [&](int64_t id, FieldBias& bias) -> Refusal {
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) {
      return WrongValue(value.name, fmt::format("there is no token {}", id));
    }
    bias.token = static_cast<TokenId>(id);
    return {};
  };
  fields.biases.clear();
  if (value.json.is_object()) {
    for (const auto& [key, number] : value.json.items()) {
      constexpr size_t kDigitsMax = 10;
      const bool is_id = !key.empty() && key.size() <= kDigitsMax &&
                         std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
      FieldBias& bias = fields.biases.emplace_back();
      if (is_id) {
        KVANT_REFUSE(take_id(std::stoll(key), bias));
      } else if (!key.empty() && key.find_first_not_of("-+.0123456789") == key.npos) {
        return WrongValue(value.name, fmt::format("there is no token {}", key));
      } else {
        bias.text = key;
      }
      KVANT_REFUSE(ReadBias(value, number, &bias.bias));
    }
    return {};
  }
  if (!value.json.is_array()) return WrongType(value.name, "an object", value.json);
  for (const RequestJson& pair : value.json) {
    if (!pair.is_array() || pair.size() != 2) return WrongType(value.name, "pairs", pair);
    FieldBias& bias = fields.biases.emplace_back();
    if (pair[0].is_string()) {
      bias.text = pair[0].get<std::string>();
    } else if (pair[0].is_number_integer()) {
      KVANT_REFUSE(take_id(pair[0].is_number_unsigned() && pair[0].get<uint64_t>() > INT32_MAX
                               ? -1
                               : pair[0].get<int64_t>(),
                           bias));
    } else {
      return WrongType(value.name, "a token's number or a text", pair[0]);
    }
    KVANT_REFUSE(ReadBias(value, pair[1], &bias.bias));
  }
  return {};
}

Refusal SetGrammar(std::string field, GrammarText text, TextFields& fields) {
  if (fields.grammar.has_value()) {
    return WrongValue(field, fmt::format("not possible together with {}", fields.grammar_field));
  }
  fields.grammar = std::move(text);
  fields.grammar_field = std::move(field);
  return {};
}

Refusal SetSchema(const std::vector<std::string>& path, TextFields& fields) {
  std::string field;
  GrammarText text = {.kind = GrammarText::Kind::kJsonSchema};
  KVANT_REFUSE(FindSchema(fields.body, path, &field, &text.text));
  return SetGrammar(std::move(field), std::move(text), fields);
}

// A schema lies in the member json_schema, as OpenAI has it, or beside the type, as llama-server's
// documentation has it.
Refusal TakeResponseFormat(const FieldValue& value, TextFields& fields) {
  const RequestJson* const type = Member(value.json, "type");
  const std::string name = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  if (name == "text") return {};
  if (name != "json_object" && name != "json_schema") {
    return WrongType(value.name + ".type", "text, json_object or json_schema",
                     type == nullptr ? RequestJson() : *type);
  }
  const RequestJson* const named = Member(value.json, "json_schema");
  if (named != nullptr && name == "json_schema") {
    if (!named->is_object()) return WrongType(value.name + ".json_schema", "an object", *named);
    return SetSchema({value.name, "json_schema", "schema"}, fields);
  }
  if (Member(value.json, "schema") != nullptr) return SetSchema({value.name, "schema"}, fields);
  if (name == "json_schema") return SetSchema({value.name, "json_schema", "schema"}, fields);
  return SetGrammar(value.name, {.kind = GrammarText::Kind::kJson}, fields);
}

Refusal TakeStreamOptions(const FieldValue& value, TextFields& fields) {
  const auto flag = [&](std::string_view name, bool* out) -> Refusal {
    const RequestJson* const member = Member(value.json, name);
    if (member == nullptr) return {};
    if (!member->is_boolean()) {
      return WrongType(fmt::format("{}.{}", value.name, name), "true or false", *member);
    }
    *out = member->get<bool>();
    return {};
  };
  KVANT_REFUSE(flag("include_usage", &fields.include_usage));
  return flag("continuous_usage_stats", &fields.usage_in_chunks);
}

// Variables of the template. They go before those of other fields.
void AddVariables(const RequestJson& members, TextFields& fields) {
  RequestJson variables = fields.render.variables.empty()
                              ? RequestJson::object()
                              : RequestJson::parse(fields.render.variables);
  variables.update(members);
  fields.render.variables = variables.dump(-1, ' ', false, RequestJson::error_handler_t::replace);
}

Refusal TakeEffort(const FieldValue& value, TextFields& fields) {
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};
  if (std::ranges::find(kEfforts, value.text) == std::end(kEfforts)) {
    return WrongType(value.name, "none, minimal, low, medium, high, xhigh or max", value.json);
  }
  if (value.text == "none") fields.render.enable_thinking = false;
  AddVariables({{"reasoning_effort", value.text}}, fields);
  return {};
}

Refusal TakeSamplers(const FieldValue& value, TextFields& fields) {
  return ReadSamplerNames(value.name, value.json, &fields.sampling.samplers);
}

// Refuses the fields that tools have replaced.
Refusal RefuseFunctions(const FieldValue& value, TextFields&) {
  const bool is_empty = value.json.is_array() && value.json.empty();
  if (is_empty || value.json == "none" || value.json == "auto") return {};
  return NotSupported(value.name, "expected tools and tool_choice in its place");
}

Refusal TakeSeed(const FieldValue& value, TextFields& fields) {
  fields.sampling.seed.reset();
  if (value.integer >= 0) fields.sampling.seed = static_cast<uint64_t>(value.integer);
  return {};
}

Refusal TakeMinKeep(const FieldValue& value, TextFields& fields) {
  fields.sampling.min_keep = static_cast<int32_t>(value.integer);
  return {};
}

Refusal TakeBreakers(const FieldValue& value, TextFields& fields) {
  if (!value.json.is_array() || value.json.size() > kStopTextsMax) {
    return WrongType(value.name, fmt::format("a list of at most {} texts", kStopTextsMax),
                     value.json);
  }
  fields.sampling.dry_sequence_breakers.clear();
  for (const RequestJson& one : value.json) {
    if (!one.is_string() || one == "") return WrongType(value.name, "texts", one);
    fields.sampling.dry_sequence_breakers.push_back(one.get<std::string>());
  }
  return {};
}

// Tools of a text that is no chat.
Refusal RefuseTools(const FieldValue& value, TextFields&) {
  const bool is_empty = value.json.is_array() && value.json.empty();
  if (is_empty || value.json == "none" || value.json == "auto") return {};
  return NotSupported(value.name, "calls of tools are in /v1/chat/completions");
}

Refusal RefuseUnlessEmpty(const FieldValue& value, TextFields&) {
  const bool is_empty = value.json.empty() || value.json == "" || value.json == false;
  return is_empty ? Refusal() : NotSupported(value.name, "this is not there");
}

Refusal RefuseAny(const FieldValue& value, TextFields&) {
  return NotSupported(value.name, "this is not there");
}

Refusal TakeModalities(const FieldValue& value, TextFields&) {
  if (value.json == RequestJson::array({"text"})) return {};
  return NotSupported(value.name, "expected [\"text\"]: other answers are not there");
}

// ---- The list -----------------------------------------------------------------------------------

void AddSamplers(std::vector<FieldRow>& rows) {
  for (const SamplerRow* const sampler : AllSamplers()) {
    for (const SamplerSetting& setting : sampler->settings) {
      const auto type = setting.is_whole() ? FieldType::kInteger : FieldType::kNumber;
      rows.push_back({RequestNames(setting), type, setting.min, setting.max,
                      [&setting](const FieldValue& value, TextFields& fields) -> Refusal {
                        setting.Set(fields.sampling, value.number);
                        return {};
                      }});
    }
  }
}

// A row that sets a member of TextFields.
template <class Target>
std::function<Refusal(const FieldValue&, TextFields&)> Into(Target TextFields::*member) {
  return [member](const FieldValue& value, TextFields& fields) -> Refusal {
    if constexpr (std::is_same_v<Target, bool>) {
      fields.*member = value.flag;
    } else if constexpr (std::is_same_v<Target, std::string>) {
      fields.*member = value.text;
    } else {
      fields.*member = static_cast<int32_t>(value.integer);
    }
    return {};
  };
}

std::vector<FieldRow> MakeRows() {
  constexpr auto kTokensMax = static_cast<double>(kContextMax);
  std::vector<FieldRow> rows = {
      {"max_completion_tokens,max_tokens,n_predict", FieldType::kInteger, -1, kTokensMax,
       Into(&TextFields::max_tokens)},
      {"n,n_cmpl", FieldType::kInteger, 1, kSamplesMax, Into(&TextFields::samples)},
      {"best_of", FieldType::kInteger, 1, kSamplesMax, Into(&TextFields::best_of), false},
      {"stop", FieldType::kAny, 0, 0, TakeStop},
      {"stream", FieldType::kFlag, 0, 0, Into(&TextFields::stream)},
      {"stream_options", FieldType::kObject, 0, 0, TakeStreamOptions},
      {"ignore_eos", FieldType::kFlag, 0, 0, Into(&TextFields::ignore_eos)},
      {"echo", FieldType::kFlag, 0, 0, Into(&TextFields::echo), false},
      {"cache_prompt", FieldType::kFlag, 0, 0, Into(&TextFields::reuses_prompt)},
      {"timings_per_token", FieldType::kFlag, 0, 0, Into(&TextFields::timings_in_chunks)},
      {"return_progress", FieldType::kFlag, 0, 0, Into(&TextFields::progress)},
      {"seed", FieldType::kInteger, -1, kNoLimit, TakeSeed},
      {"logprobs,n_probs", FieldType::kInteger, 0, kTopLogProbsMax, Into(&TextFields::log_probs),
       false},
      {"logprobs", FieldType::kFlag, 0, 0, Into(&TextFields::wants_log_probs), true, false},
      {"top_logprobs", FieldType::kInteger, 0, kTopLogProbsMax, Into(&TextFields::log_probs), true,
       false},
      {"post_sampling_probs", FieldType::kFlag, 0, 0, Into(&TextFields::after_sampling)},
      {"logit_bias", FieldType::kAny, 0, 0, TakeBiases},
      {"samplers", FieldType::kAny, 0, 0, TakeSamplers},
      {"dry_sequence_breakers", FieldType::kAny, 0, 0, TakeBreakers},
      {"min_keep", FieldType::kInteger, 0, kSamplerIntMax, TakeMinKeep},
      {"grammar", FieldType::kText, 0, 0,
       [](const FieldValue& value, TextFields& fields) -> Refusal {
         if (value.text.empty()) return {};
         return SetGrammar(value.name, {.kind = GrammarText::Kind::kGbnf, .text = value.text},
                           fields);
       }},
      {"grammar_lazy", FieldType::kFlag, 0, 0, Into(&TextFields::grammar_is_lazy)},
      {"grammar_triggers", FieldType::kAny, 0, 0,
       [](const FieldValue& value, TextFields& fields) -> Refusal {
         return ReadTriggers(value.name, value.json, &fields.triggers);
       }},
      {"response_format", FieldType::kObject, 0, 0, TakeResponseFormat},
      {"json_schema", FieldType::kAny, 0, 0,
       [](const FieldValue& value, TextFields& fields) -> Refusal {
         return SetSchema({value.name}, fields);
       }},
      {"chat_template_kwargs", FieldType::kObject, 0, 0,
       [](const FieldValue& value, TextFields& fields) -> Refusal {
         AddVariables(value.json, fields);
         return {};
       },
       true, false},
      {"reasoning_effort", FieldType::kText, 0, 0, TakeEffort, true, false},
      {"add_generation_prompt", FieldType::kFlag, 0, 0,
       [](const FieldValue& value, TextFields& fields) -> Refusal {
         fields.render.add_generation_prompt = value.flag;
         return {};
       },
       true, false},
      {"tools", FieldType::kAny, 0, 0, RefuseTools, false},
      {"tool_choice", FieldType::kAny, 0, 0, RefuseTools, false},
      {"functions", FieldType::kAny, 0, 0, RefuseFunctions},
      {"function_call", FieldType::kAny, 0, 0, RefuseFunctions},
      {"modalities", FieldType::kAny, 0, 0, TakeModalities},
      {"audio", FieldType::kAny, 0, 0, RefuseUnlessEmpty},
      {"web_search_options", FieldType::kAny, 0, 0, RefuseAny},
      {"lora", FieldType::kAny, 0, 0, RefuseUnlessEmpty},
      {"suffix", FieldType::kText, 0, 0, Into(&TextFields::suffix), false},
      {"id_slot", FieldType::kInteger, -1, kSequencesMax - 1, Into(&TextFields::slot)},
  };
  AddSamplers(rows);
  return rows;
}

const std::vector<FieldRow>& Rows() {
  static const std::vector<FieldRow> rows = MakeRows();
  return rows;
}

// Fields that are read elsewhere, and those that change no text.
const std::set<std::string>& OtherNames() {
  static const std::set<std::string> names = {"messages",
                                              "model",
                                              "prompt",
                                              "user",
                                              "metadata",
                                              "store",
                                              "service_tier",
                                              "safety_identifier",
                                              "prompt_cache_key",
                                              "prompt_cache_retention",
                                              "prompt_cache_options",
                                              "verbosity",
                                              "moderation",
                                              "prediction",
                                              "parallel_tool_calls",
                                              "continue_final_message",
                                              "reasoning_format"};
  return names;
}

int64_t CountUnknown(const RequestJson& body) {
  static const std::set<std::string> known = [] {
    std::set<std::string> all = OtherNames();
    for (const std::string_view name : NativeNames()) all.emplace(name);
    for (const FieldRow& row : Rows()) {
      for (std::string& name : SplitNames(row.names)) all.insert(std::move(name));
    }
    return all;
  }();
  int64_t count = 0;
  for (const auto& member : body.items()) count += known.contains(member.key()) ? 0 : 1;
  return count;
}

}  // namespace

const RequestJson* Member(const RequestJson& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Refusal ReadFields(const RequestJson& body, TextUse use, TextFields& fields, int64_t* unknown) {
  for (const FieldRow& row : Rows()) {
    if (!(use == TextUse::kChat ? row.in_chat : row.in_completions)) continue;
    bool taken = false;
    for (const std::string& name : SplitNames(row.names)) {
      const RequestJson* const json = Member(body, name);
      if (json == nullptr) continue;
      FieldValue value{name, *json};
      KVANT_REFUSE(ReadValue(row, value));
      if (!taken) KVANT_REFUSE(row.take(value, fields));
      taken = true;
    }
  }
  if (use == TextUse::kChat && fields.log_probs.has_value() && !fields.wants_log_probs) {
    return WrongValue("top_logprobs", "expected logprobs: true with it");
  }
  if (fields.wants_log_probs && !fields.log_probs.has_value()) fields.log_probs = 0;
  if (fields.best_of != 0 && fields.best_of < fields.samples) {
    return WrongValue("best_of", "expected at least n");
  }
  if (fields.best_of > fields.samples && fields.stream) {
    return WrongValue("best_of", "not possible together with stream");
  }
  if (fields.after_sampling && use != TextUse::kNative) {
    return NotSupported("post_sampling_probs", "/completion shows them");
  }
  KVANT_REFUSE(TakeLazyGrammar(fields));
  *unknown = CountUnknown(body);
  return {};
}

}  // namespace kvant::tools
