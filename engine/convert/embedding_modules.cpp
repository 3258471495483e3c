#include "engine/convert/embedding_modules.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/limits.h"
#include "formats/json_object.h"
#include "formats/quoted.h"
#include "formats/safetensors.h"
#include "quant/format.h"

namespace kvant::convert {
namespace {

namespace fs = std::filesystem;
using formats::Json;
using formats::JsonObject;
using formats::JsonText;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

// The tensors of the matrices, by their order behind the pooling.
constexpr std::string_view kDenseNames[] = {"dense_2", "dense_3"};

// Ways of pooling, by the end of the flag that older folders have, and by the word of newer ones.
struct PoolingName {
  std::string_view flag;
  std::string_view word;
  Pooling pooling;
};
constexpr PoolingName kPoolings[] = {{"pooling_mode_mean_tokens", "mean", Pooling::kMean},
                                     {"pooling_mode_cls_token", "cls", Pooling::kCls},
                                     {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast}};
constexpr std::string_view kFlagBeginning = "pooling_mode_";

std::string PathOfModule(const std::string& folder, std::string_view module,
                         std::string_view file) {
  return (fs::path(folder) / module / file).string();
}

Result<JsonObject> ReadIfThere(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return JsonObject(path);
  return JsonObject::Read(path);
}

Result<Pooling> ReadPoolingModule(const JsonObject& config) {
  KVANT_ASSIGN(const auto include_prompt, config.Bool("include_prompt"));
  if (!include_prompt.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: false is not supported: prompts are pooled",
                     config.Where("include_prompt"));
  }
  const PoolingName* found = nullptr;
  KVANT_ASSIGN(const auto word, config.String("pooling_mode"));
  for (const PoolingName& row : kPoolings) {
    if (word == row.word) found = &row;
  }
  for (const std::string& key : word ? std::vector<std::string>() : config.Keys()) {
    if (!key.starts_with(kFlagBeginning)) continue;
    KVANT_ASSIGN(const auto flag, config.Bool(key));
    if (!flag.value_or(false)) continue;
    const auto* row = std::ranges::find(kPoolings, key, &PoolingName::flag);
    if (row == std::end(kPoolings) || found != nullptr) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: expected one of mean_tokens, cls_token and lasttoken alone",
                       config.Where(key));
    }
    found = row;
  }
  if (found != nullptr) return found->pooling;
  return MakeError(ErrorCode::kNotSupported, "{}: expected mean, cls or lasttoken, found {}",
                   config.Where("pooling_mode"), word ? formats::Quoted(*word) : "none");
}

Result<std::vector<float>> FloatsOf(const SafetensorsModel& model, const SafetensorsTensor& tensor,
                                    const std::vector<int64_t>& shape) {
  const quant::FormatTraits* format = quant::FindFormat(tensor.type->name);
  if (tensor.shape != shape || format == nullptr || format->decode == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected {} floats as config.json says",
                     model.FileOf(tensor), formats::Quoted(tensor.name), fmt::join(shape, " x "));
  }
  std::vector<float> values(static_cast<size_t>(tensor.n_values()));
  // The file aligns nothing.
  std::vector<std::byte> bytes(tensor.data, tensor.data + tensor.size_bytes);
  format->decode(bytes.data(), values.data(), std::ssize(values));
  return values;
}

Result<std::string> ReadDenseActivation(const JsonObject& config) {
  KVANT_ASSIGN(const auto activation, config.String("activation_function"));
  const std::string name = activation.value_or("Tanh");
  const std::string_view word = std::string_view(name).substr(name.rfind('.') + 1);
  if (word == "Identity") return std::string("identity");
  if (word == "Tanh") return std::string("tanh");
  return MakeError(ErrorCode::kNotSupported, "{}: expected Identity or Tanh, found {}",
                   config.Where("activation_function"), formats::Quoted(name));
}

Result<DenseModule> ReadDense(const std::string& folder, const std::string& module) {
  KVANT_ASSIGN(const JsonObject config,
               JsonObject::Read(PathOfModule(folder, module, "config.json")));
  for (const char* key : {"module_input_name", "module_output_name"}) {
    KVANT_ASSIGN(const auto name, config.String(key));
    if (!name || *name == "sentence_embedding") continue;
    return MakeError(ErrorCode::kNotSupported, "{}: expected sentence_embedding, found {}",
                     config.Where(key), formats::Quoted(*name));
  }
  DenseModule dense;
  KVANT_ASSIGN(dense.inputs, config.Count("in_features", kDimMax));
  KVANT_ASSIGN(dense.outputs, config.Count("out_features", kDimMax));
  KVANT_ASSIGN(dense.activation, ReadDenseActivation(config));
  KVANT_ASSIGN(const SafetensorsModel model,
               SafetensorsModel::OpenFolder((fs::path(folder) / module).string()));
  for (const SafetensorsTensor& tensor : model.tensors()) {
    if (tensor.name == "linear.weight") {
      KVANT_ASSIGN(dense.weights, FloatsOf(model, tensor, {dense.outputs, dense.inputs}));
    } else if (tensor.name == "linear.bias") {
      KVANT_ASSIGN(dense.bias, FloatsOf(model, tensor, {dense.outputs}));
    } else {
      return MakeError(ErrorCode::kNotSupported, "{}: tensor {} has no place in a dense module",
                       model.FileOf(tensor), formats::Quoted(tensor.name));
    }
  }
  if (!dense.weights.empty()) return dense;
  return MakeError(ErrorCode::kCorrupt, "{}: tensor linear.weight is missing",
                   model.files().front());
}

// The modules in their order: an encoder, a pooling, matrices, a norm.
class ModuleReader {
 public:
  ModuleReader(const std::string& folder, std::string where, EmbeddingModules& out)
      : folder_(folder), where_(std::move(where)), out_(out) {}

  Status Add(const Json& module, size_t number) {
    const std::string type = JsonText(module, "type");
    const std::string path = JsonText(module, "path");
    const std::string_view kind = std::string_view(type).substr(type.rfind('.') + 1);
    if (number == 0) {
      out_.model_folder = path.empty() || path == "." ? folder_ : PathOfModule(folder_, "", path);
      return kind == "Transformer" ? Status() : Unknown(type, 0);
    }
    if (kind == "Pooling" && !out_.pooling) {
      KVANT_ASSIGN(const JsonObject config,
                   JsonObject::Read(PathOfModule(folder_, path, "config.json")));
      KVANT_ASSIGN(out_.pooling, ReadPoolingModule(config));
      return {};
    }
    if (kind == "Dense" && out_.pooling && !normalized_ &&
        out_.dense.size() < std::size(kDenseNames)) {
      KVANT_ASSIGN(out_.dense.emplace_back(), ReadDense(folder_, path));
      return {};
    }
    if (kind == "Normalize" && out_.pooling) {
      normalized_ = true;
      return {};
    }
    if (kind == "Dropout") return {};  // of training
    return Unknown(type, number);
  }

 private:
  Status Unknown(const std::string& type, size_t number) const {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: module {} is {}; expected a Transformer, a Pooling, up to {} Dense and a "
                     "Normalize",
                     where_, number, formats::Quoted(type), std::size(kDenseNames));
  }

  const std::string& folder_;
  std::string where_;
  EmbeddingModules& out_;
  bool normalized_ = false;
};

Status ReadFolderPrompts(const std::string& folder, EmbeddingModules& out) {
  KVANT_ASSIGN(const JsonObject config,
               ReadIfThere(PathOfModule(folder, "", "config_sentence_transformers.json")));
  KVANT_ASSIGN(const auto chosen, config.String("default_prompt_name"));
  out.default_prompt = chosen.value_or("");
  const Json* prompts = config.Find("prompts");
  if (prompts == nullptr) return {};
  if (!prompts->is_object()) return config.Wrong("prompts", "an object of texts");
  for (const auto& [name, text] : prompts->items()) {
    if (!text.is_string()) return config.Wrong("prompts", "an object of texts");
    out.prompt_names.push_back(name);
    out.prompts.push_back(text.get<std::string>());
  }
  const bool known =
      out.default_prompt.empty() ||
      std::ranges::find(out.prompt_names, out.default_prompt) != out.prompt_names.end();
  return known ? Status() : Status(config.Wrong("default_prompt_name", "the name of a prompt"));
}

Status ReadLimits(EmbeddingModules& out) {
  for (const char* file : {"sentence_bert_config.json", "sentence_roberta_config.json",
                           "sentence_distilbert_config.json", "sentence_camembert_config.json",
                           "sentence_xlm-roberta_config.json"}) {
    KVANT_ASSIGN(const JsonObject config, ReadIfThere(PathOfModule(out.model_folder, "", file)));
    KVANT_ASSIGN(const auto length, config.Integer("max_seq_length", kContextMax));
    KVANT_ASSIGN(const auto lower_case, config.Bool("do_lower_case"));
    if (length && *length > 0) out.max_length = length;
    out.lower_case = out.lower_case || lower_case.value_or(false);
  }
  return {};
}

}  // namespace

Result<std::optional<EmbeddingModules>> EmbeddingModules::Read(const std::string& folder) {
  const std::string path = PathOfModule(folder, "", "modules.json");
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<EmbeddingModules>();
  KVANT_ASSIGN(const Json modules, formats::ReadJson(path, uint64_t{1} << 20));
  if (!modules.is_array() || modules.empty()) {
    return MakeError(ErrorCode::kCorrupt, "{}: expected an array of modules", path);
  }
  EmbeddingModules out;
  ModuleReader reader(folder, path, out);
  for (size_t i = 0; i < modules.size(); ++i) KVANT_TRY(reader.Add(modules[i], i));
  KVANT_TRY(ReadFolderPrompts(folder, out));
  KVANT_TRY(ReadLimits(out));
  return std::optional<EmbeddingModules>(std::move(out));
}

void EmbeddingModules::NameDefault(const std::string& name) {
  const bool is_known = std::ranges::find(prompt_names, name) != prompt_names.end();
  if (is_known && default_prompt.empty()) default_prompt = name;
}

Status EmbeddingModules::AddTo(const arch::HfShape& shape, const std::string& folder,
                               arch::Parameters& out) const {
  formats::GgufWriter& writer = *out.writer;
  // A class that makes scores has said so.
  if (pooling && shape.labels == 0) {
    writer.AddU32(out.Key("pooling_type"), static_cast<uint32_t>(*pooling));
  }
  int64_t columns = shape.dim;
  for (size_t i = 0; i < dense.size(); ++i) {
    const DenseModule& module = dense[i];
    const std::string name(kDenseNames[i]);
    if (module.inputs != columns) {
      return MakeError(ErrorCode::kCorrupt, "{}: {} has {} inputs, expected {}",
                       PathOfModule(folder, "", "modules.json"), name, module.inputs, columns);
    }
    columns = module.outputs;
    writer.AddU32(out.Key(name + "_feat_in"), static_cast<uint32_t>(module.inputs));
    writer.AddU32(out.Key(name + "_feat_out"), static_cast<uint32_t>(module.outputs));
    if (module.activation != "identity") {
      writer.AddString(out.Key(name + "_activation"), module.activation);
    }
    out.tensors.push_back({name + ".weight", module.weights, module.inputs});
    if (!module.bias.empty()) out.tensors.push_back({name + ".bias", module.bias, 0});
  }
  if (max_length && *max_length < shape.context) {
    writer.AddU32(out.Key("max_sequence_length"), static_cast<uint32_t>(*max_length));
  }
  if (prompts.empty()) return {};
  writer.AddStrings("general.prompts.names", prompt_names);
  writer.AddStrings("general.prompts.texts", prompts);
  if (!default_prompt.empty()) writer.AddString("general.prompts.default", default_prompt);
  return {};
}

}  // namespace kvant::convert
