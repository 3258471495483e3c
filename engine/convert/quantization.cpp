#include "engine/convert/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "formats/json.h"
#include "formats/quoted.h"
#include "quant/formats/nvfp4.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonObject;
using formats::JsonText;
using formats::Quoted;

// The longest side of a block.
constexpr int64_t kBlockSideMax = 1 << 20;

// compressed-tensors counts its scales by groups of modules; "dense" folders have none.
constexpr std::string_view kPackedFormats[] = {"float-quantized",
                                               "naive-quantized",
                                               "nvfp4-pack-quantized",
                                               "mxfp4-pack-quantized",
                                               "mxfp8-quantized",
                                               "mixed-precision",
                                               "dense"};
constexpr std::string_view kModeloptAlgorithms[] = {"FP8", quant::NVFP4::kName, "MIXED_PRECISION"};

// Other programs write such files beside a config.json that says nothing of quantized weights.
struct OtherProgram {
  std::string_view file;
  std::string_view method;
};
constexpr OtherProgram kOtherPrograms[] = {{"quantize_config.json", "gptq"},
                                           {"quant_config.json", "awq"}};

Error CannotRead(const std::string& where, std::string_view what) {
  return MakeError(
      ErrorCode::kNotSupported,
      "{}: the weights are quantized already ({}), which cannot be read (known: fp8, "
      "fbgemm_fp8, compressed-tensors and modelopt with FP8 and FP4, mxfp4 of gpt-oss); "
      "convert the original model",
      where, what);
}

Status CheckKnown(const JsonObject& config, std::string_view key, std::string_view method,
                  std::span<const std::string_view> known) {
  KVANT_ASSIGN(const auto found, config.String(key));
  if (found && std::ranges::find(known, *found) != known.end()) return {};
  return CannotRead(config.where(), found ? fmt::format("{}, {} {}", method, key, Quoted(*found))
                                          : fmt::format("{} without {}", method, key));
}

// Two positive numbers under a key, or nothing.
Status AddBlock(const JsonObject& config, std::string_view key, Quantization& out) {
  const Json* sides = config.Find(key);
  if (sides == nullptr) return {};
  const auto is_side = [](const Json& side) {
    return side.is_number_unsigned() && side.get<uint64_t>() > 0 &&
           side.get<uint64_t>() <= uint64_t{kBlockSideMax};
  };
  if (!sides->is_array() || sides->size() != 2 || !std::ranges::all_of(*sides, is_side)) {
    return config.Wrong(key, "the rows and columns of a block");
  }
  out.blocks.push_back({(*sides)[0].get<int64_t>(), (*sides)[1].get<int64_t>()});
  return {};
}

// The blocks of compressed-tensors' groups of modules.
Status AddGroups(const JsonObject& config, Quantization& out) {
  KVANT_ASSIGN(const auto groups, config.Object("config_groups"));
  if (!groups) return {};
  const Json* all = config.Find("config_groups");
  for (const auto& [name, value] : all->items()) {
    KVANT_ASSIGN(const auto group, groups->Object(name));
    if (!group) continue;
    KVANT_ASSIGN(const auto weights, group->Object("weights"));
    if (!weights) continue;
    KVANT_TRY(AddBlock(*weights, "block_structure", out));
    KVANT_ASSIGN(const auto columns, weights->Integer("group_size", kBlockSideMax));
    if (columns.value_or(0) > 0) out.blocks.push_back({1, *columns});
  }
  return {};
}

// Refuses changes of weights or activations beyond scales, which are not computed here.
Status CheckNothingElse(const JsonObject& config, std::string_view method) {
  KVANT_ASSIGN(const auto transforms, config.Object("transform_config"));
  if (transforms) {
    const Json* groups = transforms->Find("config_groups");
    if (groups != nullptr && !groups->empty()) {
      return CannotRead(config.where(), fmt::format("{} with transform_config", method));
    }
  }
  KVANT_ASSIGN(const auto sparsity, config.Object("sparsity_config"));
  if (!sparsity) return {};
  KVANT_ASSIGN(const auto format, sparsity->String("format"));
  if (!format || *format == "dense") return {};
  return CannotRead(sparsity->where(), fmt::format("{}, format {}", method, Quoted(*format)));
}

Result<Quantization> ReadMethod(const JsonObject& config, std::string_view method,
                                const arch::HfFamily& family) {
  Quantization out{.declared = true};
  if (method == "fp8" || method == "fbgemm_fp8") {
    KVANT_TRY(AddBlock(config, "weight_block_size", out));
    return out;
  }
  if (method == "compressed-tensors") {
    KVANT_TRY(CheckKnown(config, "format", method, kPackedFormats));
    KVANT_TRY(CheckNothingElse(config, method));
    KVANT_TRY(AddGroups(config, out));
    return out;
  }
  if (method == "modelopt") {
    KVANT_TRY(CheckKnown(config, "quant_algo", method, kModeloptAlgorithms));
    return out;
  }
  if (method == family.quantization) return out;
  return CannotRead(config.where(), method);
}

bool EndsWithOneOf(std::string_view name, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings,
                             [name](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

Result<Quantization> ReadQuantization(const std::string& folder, const JsonObject& config,
                                      const arch::HfFamily& family) {
  namespace fs = std::filesystem;
  KVANT_ASSIGN(const auto own, config.Object("quantization_config"));
  if (own) {
    KVANT_ASSIGN(const auto method, own->String("quant_method"));
    if (!method) return CannotRead(own->where(), "without quant_method");
    return ReadMethod(*own, *method, family);
  }
  std::error_code error;
  const fs::path modelopt = fs::path(folder) / "hf_quant_config.json";
  if (fs::exists(modelopt, error)) {
    KVANT_ASSIGN(const JsonObject file, JsonObject::Read(modelopt.string()));
    KVANT_ASSIGN(const auto settings, file.Object("quantization"));
    if (!settings) return file.Wrong("quantization", "the settings of modelopt");
    return ReadMethod(*settings, "modelopt", family);
  }
  for (const OtherProgram& other : kOtherPrograms) {
    const fs::path path = fs::path(folder) / other.file;
    if (fs::exists(path, error)) return CannotRead(path.string(), other.method);
  }
  return Quantization();
}

bool IsWeightScale(std::string_view name) {
  constexpr std::string_view kEndings[] = {"_scale_inv", "_scale", "_scale_2", "_global_scale"};
  return EndsWithOneOf(name, kEndings);
}

bool IsActivationScale(std::string_view name) {
  constexpr std::string_view kEndings[] = {"input_scale", "input_global_scale", "activation_scale",
                                           ".q_scale",    ".k_scale",           ".v_scale"};
  return EndsWithOneOf(name, kEndings);
}

}  // namespace kvant::convert
