#include "engine/arch/hf/rope_settings.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace kvant::arch {
namespace {

using formats::Json;
using formats::Shown;

constexpr std::string_view kObjects[] = {"rope_parameters", "rope_scaling"};

// Settings that may stand at the top. GPT-NeoX has names of its own for two of them.
constexpr std::string_view kBaseName = "rope_theta";
struct TopKey {
  std::string_view key;
  std::string_view name;
};
constexpr TopKey kTopKeys[] = {
    {"rope_theta", kBaseName},
    {"rotary_emb_base", kBaseName},
    {"partial_rotary_factor", "partial_rotary_factor"},
    {"rotary_pct", "partial_rotary_factor"},
    {"original_max_position_embeddings", "original_max_position_embeddings"},
};

constexpr std::string_view kTypeName = "rope_type";
constexpr std::string_view kOlderTypeName = "type";

// Settings that all classes have. The last three change nothing in a text: the ways in which
// positions of images are told apart, and that a model was trained further.
constexpr std::string_view kNames[] = {kTypeName,
                                       kBaseName,
                                       "partial_rotary_factor",
                                       "factor",
                                       "original_max_position_embeddings",
                                       "attention_factor",
                                       "beta_fast",
                                       "beta_slow",
                                       "mscale",
                                       "mscale_all_dim",
                                       "truncate",
                                       "short_factor",
                                       "long_factor",
                                       "low_freq_factor",
                                       "high_freq_factor",
                                       "mrope_section",
                                       "mrope_interleaved",
                                       "finetuned"};

// A type in lower case, by the name that it has today.
std::string TypeNamed(std::string type) {
  std::ranges::transform(type, type.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (type == "su") return "longrope";  // of the first models with long contexts
  return type == "mrope" ? "default" : type;
}

bool AreSame(std::string_view name, const Json& a, const Json& b) {
  if (name != kTypeName || !a.is_string() || !b.is_string()) return a == b;
  return TypeNamed(a.get<std::string>()) == TypeNamed(b.get<std::string>());
}

// The kinds of layers that have settings of their own; none where all layers have the same.
std::vector<std::string> KindsIn(const Json& settings) {
  std::vector<std::string> kinds;
  for (const auto& [key, value] : settings.items()) {
    if (value.is_object()) kinds.push_back(key);
  }
  return kinds;
}

}  // namespace

Result<RopeSettings> RopeSettings::Read(const JsonObject& config, const RopeLayers& layers) {
  RopeSettings settings(config);
  KVANT_TRY(settings.AddTop(config, layers));
  for (const std::string_view key : kObjects) KVANT_TRY(settings.AddObject(config, key, layers));
  return settings;
}

Status RopeSettings::AddTop(const JsonObject& config, const RopeLayers& layers) {
  if (layers.base_key != kBaseName) return Add(kBaseName, config, layers.base_key);
  for (const TopKey& row : kTopKeys) KVANT_TRY(Add(row.name, config, row.key));
  return {};
}

Status RopeSettings::AddObject(const JsonObject& config, std::string_view key,
                               const RopeLayers& layers) {
  KVANT_ASSIGN(const auto object, config.Object(key));
  if (!object) return {};
  const bool is_main = layers.type == kMainLayers;
  const std::vector<std::string> kinds = KindsIn(*config.Find(key));
  if (kinds.empty()) return is_main ? AddAll(*object) : Status();
  const bool found = object->Find(layers.type) != nullptr;
  if (!found && !(is_main && kinds.size() == 1)) return {};
  KVANT_ASSIGN(const auto own, object->Object(found ? layers.type : kinds.front()));
  KVANT_TRY(AddAll(*own));
  // Beside the kinds stands nothing that they do not say themselves.
  for (const auto& [name, value] : config.Find(key)->items()) {
    if (value.is_null() || value.is_object() || own->Find(name) != nullptr) continue;
    return MakeError(ErrorCode::kCorrupt,
                     "{} is {}, expected it in the settings of each layer type",
                     object->Where(name), Shown(value));
  }
  return {};
}

Status RopeSettings::AddAll(const JsonObject& object) {
  main_ = object;
  for (const std::string& key : object.Keys()) {
    KVANT_TRY(Add(key == kOlderTypeName ? kTypeName : key, object, key));
  }
  return {};
}

Status RopeSettings::Add(std::string_view name, const JsonObject& object, std::string_view key) {
  const Json* value = object.Find(key);
  if (value == nullptr) return {};
  const auto [known, is_new] =
      settings_.try_emplace(std::string(name), Place{object, std::string(key)});
  if (is_new) return {};
  const Place& place = known->second;
  const Json& other = *place.object.Find(place.key);
  if (AreSame(name, other, *value)) return {};
  return MakeError(ErrorCode::kCorrupt, "{} is {}, but {} is {}; expected one value",
                   place.object.Where(place.key), Shown(other), object.Where(key), Shown(*value));
}

RopeSettings::Place RopeSettings::PlaceOf(std::string_view name) const {
  const auto found = settings_.find(name);
  return found != settings_.end() ? found->second : Place{main_, std::string(name)};
}

Result<std::optional<double>> RopeSettings::Number(std::string_view name) const {
  const Place place = PlaceOf(name);
  return place.object.Number(place.key);
}

Result<std::optional<int64_t>> RopeSettings::Integer(std::string_view name, int64_t max) const {
  const Place place = PlaceOf(name);
  return place.object.Integer(place.key, max);
}

Result<std::optional<std::vector<float>>> RopeSettings::Numbers(std::string_view name) const {
  const Place place = PlaceOf(name);
  return place.object.Numbers(place.key);
}

Result<std::optional<bool>> RopeSettings::Bool(std::string_view name) const {
  const Place place = PlaceOf(name);
  return place.object.Bool(place.key);
}

Result<double> RopeSettings::PositiveOr(std::string_view name, double otherwise) const {
  KVANT_ASSIGN(const std::optional<double> value, Number(name));
  if (value && !(*value > 0)) return Wrong(name, "a positive number");
  return value.value_or(otherwise);
}

// "rope_parameters" need not name a type; "rope_scaling" without one says nothing.
Result<std::optional<std::string>> RopeSettings::Type() const {
  const Place place = PlaceOf(kTypeName);
  KVANT_ASSIGN(std::optional<std::string> type, place.object.String(place.key));
  if (type) type = TypeNamed(std::move(*type));
  return type == "default" ? std::optional<std::string>() : type;
}

std::string RopeSettings::Where(std::string_view name) const {
  const Place place = PlaceOf(name);
  return place.object.Where(place.key);
}

Error RopeSettings::Wrong(std::string_view name, std::string_view expected) const {
  const Place place = PlaceOf(name);
  return place.object.Wrong(place.key, expected);
}

Error RopeSettings::UnsupportedType(std::string_view known) const {
  const Place place = PlaceOf(kTypeName);
  const Json* type = place.object.Find(place.key);
  return MakeError(ErrorCode::kNotSupported, "{}: type {} is not supported (known: {})",
                   place.object.where(), type == nullptr ? "none" : Shown(*type), known);
}

Status RopeSettings::CheckNames(std::span<const std::string_view> further) const {
  for (const auto& [name, place] : settings_) {
    if (std::ranges::find(kNames, name) != std::end(kNames)) continue;
    if (std::ranges::find(further, name) != further.end()) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{} is {}, but models of this class are not known to have such a setting",
                     place.object.Where(place.key), Shown(*place.object.Find(place.key)));
  }
  return {};
}

Status CheckOneRope(const JsonObject& config) {
  for (const std::string_view key : kObjects) {
    KVANT_ASSIGN(const auto object, config.Object(key));
    if (!object) continue;
    const std::vector<std::string> kinds = KindsIn(*config.Find(key));
    for (const std::string& kind : kinds) {
      const Json& first = *object->Find(kinds.front());
      const Json& own = *object->Find(kind);
      if (own == first) continue;
      return MakeError(ErrorCode::kNotSupported,
                       "{} is {}, but {} is {}; expected one rotary embedding for all layers of "
                       "this class",
                       object->Where(kinds.front()), Shown(first), object->Where(kind), Shown(own));
    }
  }
  return {};
}

Status CheckTwoRopes(const JsonObject& config) {
  for (const std::string_view key : kObjects) {
    KVANT_ASSIGN(const auto object, config.Object(key));
    if (!object) continue;
    const std::vector<std::string> kinds = KindsIn(*config.Find(key));
    const auto is_known = [](std::string_view kind) {
      return kind == kMainLayers || kind == kWindowLayers;
    };
    const bool has_main = object->Find(kMainLayers) != nullptr;
    if (kinds.empty() || (has_main && std::ranges::all_of(kinds, is_known))) continue;
    return MakeError(ErrorCode::kNotSupported, "{} is {}, expected {} and {}", config.Where(key),
                     Shown(*config.Find(key)), kMainLayers, kWindowLayers);
  }
  return {};
}

}  // namespace kvant::arch
