// Settings in the form of ONNX Runtime GenAI's genai_config.json, laid over options of the C API.
//
// Every key that its configuration has is a row of a list: what type its value has, and what takes
// it. A row without a taker is a setting that kvant has no use for, which is told as a warning. The
// values are collected first, so that an error changes nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "engine/capi/handles.h"
#include "formats/json.h"

namespace kvant::capi {
namespace {

using formats::Json;

// The settings that an overlay gives; the others are empty.
struct Settings {
  std::optional<int64_t> batch, beams, returned, max_length, min_length, context, chunk, threads,
      ngram, top_k, seed;
  std::optional<double> length_penalty, diversity, repetition, top_p, temperature;
  std::optional<bool> sample, stops_early;
};

using Whole = std::optional<int64_t> Settings::*;
using Real = std::optional<double> Settings::*;
using Flag = std::optional<bool> Settings::*;

enum class Type : uint8_t { kWhole, kReal, kFlag, kAny };

struct Row {
  std::string_view path;
  Type type;
  // The member of Settings that takes the value; all three are null where none does.
  Whole whole = nullptr;
  Real real = nullptr;
  Flag flag = nullptr;
  int64_t least = 0;
  int64_t most = INT32_MAX;
  std::string_view reason = "";  // why there is no use for it
};

constexpr Row Number(std::string_view path, Whole taker, int64_t least) {
  return {.path = path, .type = Type::kWhole, .whole = taker, .least = least};
}
constexpr Row Fraction(std::string_view path, Real taker) {
  return {.path = path, .type = Type::kReal, .real = taker};
}
constexpr Row Switch(std::string_view path, Flag taker) {
  return {.path = path, .type = Type::kFlag, .flag = taker};
}
constexpr Row Unused(std::string_view path, std::string_view reason, Type type = Type::kAny) {
  return {.path = path, .type = type, .reason = reason};
}

constexpr std::string_view kOfFile = "the model's file says it";
constexpr std::string_view kOfSession = "it is an option of another engine's sessions";
constexpr std::string_view kInPlace = "the cache always grows in its place";

constexpr Row kRows[] = {
    Number("search.batch_size", &Settings::batch, 1),
    Unused("search.blank_penalty", "it is for models of another kind", Type::kReal),
    Number("search.chunk_size", &Settings::chunk, 1),
    Fraction("search.diversity_penalty", &Settings::diversity),
    Switch("search.do_sample", &Settings::sample),
    Switch("search.early_stopping", &Settings::stops_early),
    Fraction("search.length_penalty", &Settings::length_penalty),
    Number("search.max_length", &Settings::max_length, 0),
    Number("search.min_length", &Settings::min_length, 0),
    Number("search.no_repeat_ngram_size", &Settings::ngram, 0),
    Number("search.num_beams", &Settings::beams, 1),
    Number("search.num_return_sequences", &Settings::returned, 1),
    Unused("search.past_present_share_buffer", kInPlace, Type::kFlag),
    Number("search.random_seed", &Settings::seed, -1),
    Fraction("search.repetition_penalty", &Settings::repetition),
    Fraction("search.temperature", &Settings::temperature),
    Number("search.top_k", &Settings::top_k, 0),
    Fraction("search.top_p", &Settings::top_p),
    Unused("model.bos_token_id", kOfFile),
    Number("model.context_length", &Settings::context, 1),
    Unused("model.decoder.filename", kOfFile),
    Unused("model.decoder.head_size", kOfFile),
    Unused("model.decoder.hidden_size", kOfFile),
    Unused("model.decoder.inputs", kOfFile),
    Unused("model.decoder.num_attention_heads", kOfFile),
    Unused("model.decoder.num_hidden_layers", kOfFile),
    Unused("model.decoder.num_key_value_heads", kOfFile),
    Unused("model.decoder.outputs", kOfFile),
    Unused("model.decoder.session_options.inter_op_num_threads", kOfSession, Type::kWhole),
    Number("model.decoder.session_options.intra_op_num_threads", &Settings::threads, 0),
    Unused("model.decoder.session_options.log_id", kOfSession),
    Unused("model.decoder.session_options.provider_options", "there is no such provider"),
    Unused("model.decoder.sliding_window.alignment", kOfFile),
    Unused("model.decoder.sliding_window.cache_slack", kOfFile),
    Unused("model.decoder.sliding_window.layers", kOfFile),
    Unused("model.decoder.sliding_window.pad_value", kOfFile),
    Unused("model.decoder.sliding_window.slide_inputs", kOfFile),
    Unused("model.decoder.sliding_window.slide_key_value_cache", kOfFile),
    Unused("model.decoder.sliding_window.window_size", kOfFile),
    Unused("model.decoder_start_token_id", kOfFile),
    Unused("model.eos_token_id", kOfFile),
    Unused("model.pad_token_id", kOfFile),
    Unused("model.sep_token_id", kOfFile),
    Unused("model.type", kOfFile),
    Unused("model.vocab_size", kOfFile),
};

const Row* FindRow(std::string_view path) {
  for (const Row& row : kRows) {
    if (row.path == path) return &row;
  }
  return nullptr;
}

// Whether keys of the list lie below this one.
bool IsObject(std::string_view path) {
  for (const Row& row : kRows) {
    if (row.path.size() > path.size() && row.path.starts_with(path) &&
        row.path[path.size()] == '.') {
      return true;
    }
  }
  return false;
}

Status WrongValue(std::string_view path, std::string_view expected, const Json& value) {
  return MakeError(ErrorCode::kInvalid, "overlay: {}: expected {}, found {}", path, expected,
                   formats::Shown(value));
}

Status Take(const Row& row, const Json& value, Settings& settings,
            std::vector<std::string>& warnings) {
  if (row.type == Type::kWhole) {
    const bool whole = value.is_number_integer() && value >= row.least && value <= row.most;
    if (!whole) {
      return WrongValue(row.path, fmt::format("a whole number from {}", row.least), value);
    }
    if (row.whole != nullptr) settings.*row.whole = value.get<int64_t>();
  } else if (row.type == Type::kReal) {
    if (!value.is_number()) return WrongValue(row.path, "a number", value);
    if (row.real != nullptr) settings.*row.real = value.get<double>();
  } else if (row.type == Type::kFlag) {
    if (!value.is_boolean()) return WrongValue(row.path, "true or false", value);
    if (row.flag != nullptr) settings.*row.flag = value.get<bool>();
  }
  const bool as_it_is = row.reason == kInPlace && value == true;
  if (!row.reason.empty() && !as_it_is) {
    warnings.push_back(fmt::format("{} has no effect: {}", row.path, row.reason));
  }
  return {};
}

// `path` is that of the object; "" at the top.
Status Walk(const Json& object, const std::string& path, Settings& settings,
            std::vector<std::string>& warnings) {
  if (!object.is_object()) {
    return WrongValue(path.empty() ? "the whole" : path, "an object", object);
  }
  for (const auto& [key, value] : object.items()) {
    std::string below = path.empty() ? key : path + "." + key;
    if (below == "decoder") below = "model.decoder";
    if (const Row* const row = FindRow(below)) {
      KVANT_TRY(Take(*row, value, settings, warnings));
    } else if (IsObject(below)) {
      KVANT_TRY(Walk(value, below, settings, warnings));
    } else {
      return MakeError(ErrorCode::kInvalid, "overlay: {}: there is no such setting", below);
    }
  }
  return {};
}

template <class To, class From>
void Put(To& to, const std::optional<From>& from) {
  if (from.has_value()) to = static_cast<To>(*from);
}

void Apply(const Settings& from, kvant_runner_options& to) {
  Put(to.context, from.context);
  if (from.max_length.value_or(0) > 0) Put(to.context, from.max_length);
  Put(to.chunk, from.chunk);
  Put(to.threads, from.threads);
  if (from.batch.has_value() || from.beams.has_value()) {
    to.sequences = from.batch.value_or(1) * from.beams.value_or(1);
  }
}

void Apply(const Settings& from, kvant_sampling_options& to) {
  Put(to.top_k, from.top_k);
  Put(to.top_p, from.top_p);
  Put(to.temperature, from.temperature);
  if (from.sample.has_value() && !*from.sample) to.temperature = 0;
  Put(to.repeat_penalty, from.repetition);
  if (from.repetition.has_value()) to.repeat_last_n = -1;  // all tokens, as there
  if (from.seed.has_value() && *from.seed >= 0) {
    to.has_seed = 1;
    Put(to.seed, from.seed);
  }
}

void Apply(const Settings& from, kvant_beam_options& to) {
  Put(to.beams, from.beams);
  Put(to.num_return, from.returned);
  if (from.max_length.value_or(0) > 0) Put(to.max_length, from.max_length);
  Put(to.min_length, from.min_length);
  Put(to.no_repeat_ngram, from.ngram);
  Put(to.diversity_penalty, from.diversity);
  Put(to.repetition_penalty, from.repetition);
  Put(to.length_penalty, from.length_penalty);
  if (from.length_penalty.has_value()) to.has_length_penalty = 1;
  Put(to.early_stopping, from.stops_early);
  Put(to.sample, from.sample);
  if (!from.sample.value_or(false)) return;
  Put(to.temperature, from.temperature);
  Put(to.top_k, from.top_k);
  Put(to.top_p, from.top_p);
  if (from.seed.has_value() && *from.seed >= 0) Put(to.seed, from.seed);
}

// Lays the settings over a caller's struct, which may be older or newer than the library.
template <class T>
Status ApplyTo(const Settings& settings, T* out, std::string_view name) {
  if (out == nullptr) return {};
  KVANT_ASSIGN(T options, ReadStruct(out, T{}, name));
  Apply(settings, options);
  return WriteStruct(out, options, name);
}

template <class T>
Status CheckSize(const T* out, std::string_view name) {
  return out == nullptr ? Status() : CheckStruct(out, out->struct_size, sizeof(T), name);
}

}  // namespace
}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

kvant_status kvant_options_overlay(const char* json, size_t size, kvant_runner_options* runner,
                                   kvant_sampling_options* sampling, kvant_beam_options* beams,
                                   char** unused, size_t* unused_size) {
  return Call(nullptr, [&]() -> Status {
    KVANT_ASSIGN(const std::string_view text, Text(json, size, "json"));
    KVANT_TRY(CheckSize(runner, "runner options"));
    KVANT_TRY(CheckSize(sampling, "sampling options"));
    KVANT_TRY(CheckSize(beams, "beam options"));
    const Result<Json> overlay = formats::ParseJson(text, "overlay");
    if (!overlay.ok()) return MakeError(ErrorCode::kInvalid, "{}", overlay.error().message);
    Settings settings;
    std::vector<std::string> warnings;
    KVANT_TRY(Walk(*overlay, "", settings, warnings));
    if (unused != nullptr) KVANT_TRY(Need(unused_size, "unused_size"));
    KVANT_TRY(ApplyTo(settings, runner, "runner options"));
    KVANT_TRY(ApplyTo(settings, sampling, "sampling options"));
    KVANT_TRY(ApplyTo(settings, beams, "beam options"));
    if (unused == nullptr) {
      for (const std::string& warning : warnings) Log(LogLevel::kWarning, "overlay: " + warning);
      return {};
    }
    const std::string lines = fmt::format("{}", fmt::join(warnings, "\n"));
    *unused = CopyText(lines);
    *unused_size = lines.size();
    return {};
  });
}
