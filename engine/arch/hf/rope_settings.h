// The settings of rotary embeddings in config.json, wherever a folder keeps them: at the top and
// under "rope_scaling", as transformers 4 writes them, or under "rope_parameters", as version 5
// does, there for all layers or for each kind of layer. Whoever reads such a setting asks this
// class.
//
// Errors name the file and the key: kCorrupt for a setting of another type and for two places that
// disagree, kNotSupported for a setting that nobody reads. Thread-safety: const after Read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/json_object.h"

namespace kvant::arch {

using formats::JsonObject;

// Kinds of layers, as "rope_parameters" calls them.
inline constexpr std::string_view kMainLayers = "full_attention";
inline constexpr std::string_view kWindowLayers = "sliding_attention";

// The layers whose settings are read. What is told without a kind of layer, and "rope_scaling",
// belongs to layers that see all positions.
struct RopeLayers {
  std::string_view type = kMainLayers;
  std::string_view base_key = "rope_theta";  // of their base at the top
};

class RopeSettings {
 public:
  static Result<RopeSettings> Read(const JsonObject& config, const RopeLayers& layers = {});

  // A setting by the name that it has under "rope_parameters", nothing where no place has it.
  bool Has(std::string_view name) const { return settings_.contains(name); }
  Result<std::optional<double>> Number(std::string_view name) const;
  Result<std::optional<int64_t>> Integer(std::string_view name, int64_t max) const;
  Result<std::optional<std::vector<float>>> Numbers(std::string_view name) const;
  Result<std::optional<bool>> Bool(std::string_view name) const;
  Result<double> PositiveOr(std::string_view name, double otherwise) const;
  // The way of stretching, in lower case; nothing where positions are not stretched.
  Result<std::optional<std::string>> Type() const;

  // The file and the keys that lead to a setting, and the error for a wrong one.
  std::string Where(std::string_view name) const;
  Error Wrong(std::string_view name, std::string_view expected) const;
  Error UnsupportedType(std::string_view known) const;

  // kNotSupported for a setting that neither all classes have nor `further` names: it may change
  // what the model computes.
  Status CheckNames(std::span<const std::string_view> further) const;

 private:
  // Where a setting stands.
  struct Place {
    JsonObject object;
    std::string key;
  };

  explicit RopeSettings(const JsonObject& config) : main_{config} {}

  Status AddTop(const JsonObject& config, const RopeLayers& layers);
  Status AddObject(const JsonObject& config, std::string_view key, const RopeLayers& layers);
  Status AddAll(const JsonObject& object);
  Status Add(std::string_view name, const JsonObject& object, std::string_view key);
  Place PlaceOf(std::string_view name) const;

  JsonObject main_;  // where a setting that is nowhere is said to be missing
  std::map<std::string, Place, std::less<>> settings_;
};

// kNotSupported where kinds of layers have different settings: for classes with one rotary
// embedding for all layers.
Status CheckOneRope(const JsonObject& config);

// For classes with one rotary embedding of layers that see all positions, and one of layers with a
// window: kNotSupported where kinds have settings, but not the first of these or others besides.
Status CheckTwoRopes(const JsonObject& config);

}  // namespace kvant::arch
