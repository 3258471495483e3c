// The calls of kvant/kvant.h on models, and on the library as a whole.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/version.h"
#include "engine/capi/handles.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"
#include "kvant/model_defaults.h"

namespace kvant::capi {
namespace {

constexpr kvant_model_options kModelDefaults = {
    .struct_size = sizeof(kvant_model_options),
    .read_file = 0,
    .lock_memory = 0,
    .isa = nullptr,
    .float_gemm = nullptr,
    .pre_tokenizer = nullptr,
    .progress = nullptr,
    .progress_user = nullptr,
    .ignore_keys = nullptr,
    .predictors = 0,
};

// The names between commas.
std::vector<std::string> NamesOf(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

nlohmann::json JsonOf(const formats::GgufArray& array) {
  nlohmann::json out = nlohmann::json::array();
  for (const std::string_view text : array.strings) out.push_back(std::string(text));
  if (!array.strings.empty()) return out;
  const auto add = [&]<class T>(T value) {
    for (uint64_t i = 0; i < array.count; ++i) {
      std::memcpy(&value, array.data + i * sizeof(T), sizeof(T));
      out.push_back(value);
    }
  };
  using formats::GgufType;
  switch (array.type) {
    case GgufType::kUint8: add(uint8_t{}); break;
    case GgufType::kInt8: add(int8_t{}); break;
    case GgufType::kUint16: add(uint16_t{}); break;
    case GgufType::kInt16: add(int16_t{}); break;
    case GgufType::kUint32: add(uint32_t{}); break;
    case GgufType::kInt32: add(int32_t{}); break;
    case GgufType::kUint64: add(uint64_t{}); break;
    case GgufType::kInt64: add(int64_t{}); break;
    case GgufType::kFloat32: add(float{}); break;
    case GgufType::kFloat64: add(double{}); break;
    case GgufType::kBool:
      for (uint64_t i = 0; i < array.count; ++i) out.push_back(array.data[i] != std::byte{0});
      break;
    case GgufType::kString:
    case GgufType::kArray: break;  // an empty one; arrays of arrays are refused by the reader
  }
  return out;
}

nlohmann::json JsonOf(const formats::GgufValue& value) {
  return std::visit(
      [](const auto& held) -> nlohmann::json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, formats::GgufArray>) {
          return JsonOf(held);
        } else if constexpr (std::is_same_v<Held, std::string_view>) {
          return std::string(held);
        } else {
          return held;
        }
      },
      value.value);
}

// The sampling settings that the model's file recommends, in the struct of C.
void TakeRecommended(kvant_model& handle) {
  const SamplingOptions& options = handle.model->defaults().sampling;
  handle.sampling = SamplingInC(options);
  if (!options.samplers.has_value()) return;
  for (const std::string& name : *options.samplers) {
    handle.samplers += (handle.samplers.empty() ? "" : ";") + name;
  }
  handle.sampling.samplers = handle.samplers.c_str();
}

}  // namespace
}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

uint32_t kvant_abi_version(void) { return KVANT_ABI_VERSION; }

const char* kvant_version(void) { return Version().version.data(); }

void kvant_set_log(kvant_log_function function, void* user) {
  Call(nullptr, [&]() -> Status {
    LogSink sink;
    if (function != nullptr) {
      sink = [function, user](LogLevel level, std::string_view line) {
        function(user, static_cast<int32_t>(level), line.data(), line.size());
      };
    }
    SetLogSink(std::move(sink));
    return {};
  });
}

void kvant_set_interrupt(kvant_interrupt_function function, void* user) {
  SetInterrupt(function, user);
}

kvant_status kvant_model_options_default(kvant_model_options* options, size_t size) {
  return FillDefault(options, size, kModelDefaults);
}

kvant_status kvant_model_open(const char* path, const kvant_model_options* options,
                              kvant_model** model) {
  return Call(nullptr, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    *model = nullptr;
    KVANT_TRY(Need(path, "path"));
    KVANT_ASSIGN(const auto given, ReadStruct(options, kModelDefaults, "model options"));
    ModelOptions wanted;
    wanted.access = given.read_file != 0 ? FileAccess::kRead : FileAccess::kMap;
    wanted.lock_memory = given.lock_memory != 0;
    wanted.predictors = given.predictors != 0;
    if (given.progress != nullptr) {
      wanted.progress = [&given](uint64_t done, uint64_t total) {
        return given.progress(given.progress_user, static_cast<int64_t>(done),
                              static_cast<int64_t>(total)) == 0;
      };
    }
    wanted.isa = TextOrNone(given.isa);
    wanted.float_gemm = TextOrNone(given.float_gemm);
    wanted.ignored_keys = NamesOf(TextOrNone(given.ignore_keys));
    wanted.tokenizer.pre_override = TextOrNone(given.pre_tokenizer);
    auto handle = std::make_unique<kvant_model>();
    KVANT_ASSIGN(handle->model, Model::Open(path, wanted));
    handle->architecture = handle->model->architecture();
    for (const auto& tensor : handle->model->file().tensors()) {
      handle->parameters += static_cast<uint64_t>(tensor.n_values());
    }
    for (const auto& [key, value] : handle->model->file().metadata()) {
      handle->keys.emplace_back(key);
    }
    TakeRecommended(*handle);
    return Give(model, std::move(handle));
  });
}

void kvant_model_free(kvant_model* model) { Free(model); }

kvant_status kvant_model_get_info(const kvant_model* model, kvant_model_info* info) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    const Model& held = *model->model;
    kvant_model_info values = {};
    values.architecture = model->architecture.c_str();
    values.path = held.file().path().c_str();
    values.vocab_size = held.vocab_size();
    values.has_encoder = held.has_encoder() ? 1 : 0;
    values.context_length = held.context_length();
    values.source_length = held.source_length();
    values.decoder_start = held.decoder_start().value_or(-1);
    values.cache_layers = static_cast<int32_t>(held.cache_layers().size());
    values.parameters = model->parameters;
    values.file_bytes = held.file().file_bytes();
    values.fingerprint = held.Fingerprint();
    if (const auto shape = held.frame_shape()) {
      values.frame_bins = shape->bins;
      values.frames = shape->frames;
    }
    return WriteStruct(info, values, "info");
  });
}

const char* kvant_model_metadata_key(const kvant_model* model, size_t index) {
  if (model == nullptr) return nullptr;
  return index < model->keys.size() ? model->keys[index].c_str() : nullptr;
}

kvant_status kvant_model_metadata(const kvant_model* model, const char* key, char** json,
                                  size_t* size) {
  return Call(model, [&]() -> Status {
    KVANT_TRY(Need(model, "model"));
    KVANT_TRY(Need(key, "key"));
    KVANT_TRY(Need(json, "json"));
    const formats::GgufValue* value = model->model->file().Find(key);
    if (value == nullptr) {
      return MakeError(ErrorCode::kInvalid, "{}: it has no key \"{}\"", model->model->file().path(),
                       key);
    }
    const std::string text =
        JsonOf(*value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    *json = CopyText(text);
    if (size != nullptr) *size = text.size();
    return {};
  });
}
