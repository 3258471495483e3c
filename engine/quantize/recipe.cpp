#include "engine/quantize/recipe.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "base/result.h"
#include "engine/arch/family.h"
#include "engine/quantize/recipe_rules.h"

namespace kvant::quantize {
namespace {

using formats::GgufTensor;
using quant::FormatTraits;

constexpr std::pair<std::string_view, std::string_view> kShortNames[] = {
    {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

// ---- Families ----------------------------------------------------------------------------------

using arch::MixTraits;
using arch::SmallValues;

constexpr int64_t kLayersOf70B = 80;

// Architectures that are quantized, but are no family of engine/arch yet. The traits of families
// stand with them: whoever adds such a family moves its row there.
struct OtherArchitecture {
  std::string_view arch;
  MixTraits mix;
};

constexpr OtherArchitecture kOtherArchitectures[] = {
    {"deci", {.small_values = SmallValues::kAlways}},
};

MixTraits MixOf(const RecipeModel& model) {
  for (const arch::Family* family : arch::AllFamilies()) {
    if (family->name == model.arch) return family->mix;
  }
  for (const OtherArchitecture& other : kOtherArchitectures) {
    if (other.arch == model.arch) return other.mix;
  }
  return {};
}

// ---- Roles -------------------------------------------------------------------------------------

// The piece of a name that gives a tensor its role; the first one found counts.
constexpr std::pair<std::string_view, Role> kRoleNames[] = {
    {"attn_v.weight", Role::kAttnV},
    {"attn_k.weight", Role::kAttnK},
    {"attn_q.weight", Role::kAttnQ},
    {"ffn_down", Role::kFfnDown},
    {"attn_output.weight", Role::kAttnOutput},
    {"attn_qkv.weight", Role::kAttnQkv},
    {"ffn_gate", Role::kFfnGate},
    {"ffn_up", Role::kFfnUp},
};

Role RoleOf(std::string_view name) {
  if (name == kEmbeddingName) return Role::kEmbedding;
  for (const auto& [part, role] : kRoleNames) {
    if (name.find(part) != std::string_view::npos) return role;
  }
  return Role::kOther;
}

// "blk.7.attn_v.weight" -> 7; -1 where there is no layer.
int64_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  int64_t layer = -1;
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  }
  return layer;
}

// ---- Rules -------------------------------------------------------------------------------------

bool Names(std::string_view recipes, std::string_view name) {
  for (size_t at = recipes.find(name); at != std::string_view::npos;
       at = recipes.find(name, at + 1)) {
    const bool begins = at == 0 || recipes[at - 1] == ' ';
    if (begins && recipes[at + name.size()] == ' ') return true;
  }
  return false;
}

bool IsThere(Where where, int64_t index, int64_t layers) {
  switch (where) {
    case kAll: return true;
    case kFirst: return index == 0;
    case kFirst2: return index < 2;
    case kFirst4: return index < 4;
    case kFirst16th: return index < layers / 16;
    case kFirst8th: return index < layers / 8;
    case kMiddle: return index >= layers / 8 && index < 7 * layers / 8;
    case kMoreBits:
      return index < layers / 8 || index >= 7 * layers / 8 || (index - layers / 8) % 3 == 2;
  }
  return false;
}

bool HasSmallValues(const RecipeModel& model) {
  if (model.layers != kLayersOf70B) return false;
  switch (MixOf(model).small_values) {
    case SmallValues::kNever: return false;
    case SmallValues::kIfGrouped: return model.heads != model.kv_heads;
    case SmallValues::kAlways: return true;
  }
  return false;
}

bool IsMet(Need need, const RecipeModel& model) {
  const int64_t shared = model.kv_heads > 0 ? model.heads / model.kv_heads : 1;
  const bool grouped = shared >= 4;
  switch (need) {
    case kNone: return true;
    case kGrouped2: return shared >= 2;
    case kGrouped4: return grouped;
    case kGrouped4OrExperts4: return grouped || model.experts >= 4;
    case kExperts4: return model.experts >= 4;
    case kExperts8: return model.experts == 8;
    case kExperts8OrMore: return model.experts >= 8;
    case kImportance: return model.has_importance;
    case kNoImportance: return !model.has_importance;
    case kOwnMix: return MixOf(model).own_mix;
    case kSmallValues: return HasSmallValues(model);
    case kBigVocabulary:
      return model.vocabulary >= 127999 && (model.layers == 32 || model.layers == kLayersOf70B);
  }
  return false;
}

const FormatTraits& Format(std::string_view name) {
  const FormatTraits* format = quant::FindFormat(name);
  KVANT_CHECK(format != nullptr);
  return *format;
}

// ---- Application -------------------------------------------------------------------------------

class Chooser {
 public:
  Chooser(const Recipe& recipe, const RecipeModel& model, bool has_output)
      : recipe_(recipe),
        model_(model),
        base_(Format(recipe.base)),
        has_output_(has_output),
        very_low_(Names(kVeryLow, recipe.name)) {}

  // To be called for the tensors in the order of their layers: rules count them.
  const FormatTraits& Choose(const GgufTensor& tensor) {
    const bool is_embedding = tensor.name == kEmbeddingName;
    if (!base_.quantized()) return base_;
    if (tensor.name == kOutputName || (is_embedding && !has_output_)) return OutputFormat(tensor);
    if (std::string_view(recipe_.name) == "MXFP4_MOE" && tensor.dims[2] > 1) {
      return Format("MXFP4");
    }
    Role role = RoleOf(tensor.name);
    const int64_t ordinal = role == kOther ? 0 : seen_[role]++;
    const bool by_name = model_.experts > 1 && !CountsAll() &&
                         (role == kFfnDown || role == kFfnGate || role == kFfnUp);
    const int64_t layer = by_name ? LayerOf(tensor.name) : ordinal;
    const bool of_shared = tensor.name.find("_shexp.weight") != std::string_view::npos;
    if (of_shared && HasRule(kSharedExpert) && !(layer == 0 && model_.experts >= 8)) {
      role = kSharedExpert;
    }
    return ByRules(role, layer);
  }

 private:
  // The format of the output matrix, also where the embedding serves as one.
  const FormatTraits& OutputFormat(const GgufTensor& tensor) const {
    const int values = Names(kOfIk, recipe_.name) ? 256 : base_.block_values;
    if (MixOf(model_).own_mix || tensor.dims[0] % values != 0) {
      return Format("Q8_0");
    }
    if (very_low_ || std::string_view(recipe_.name) == "IQ3_XXS") return Format("Q5_K");
    if (Names("IQ1_KT IQ2_KT IQ2_KS IQ2_K IQ2_KL IQ3_KT IQ3_KS IQ3_K ", recipe_.name)) {
      return Format(has_output_ ? "Q5_K" : "IQ4_K");
    }
    if (!has_output_ && Names("IQ3_KL IQ4_KS IQ4_KSS ", recipe_.name)) return Format("IQ5_K");
    const std::string_view base = base_.name;
    return base == "Q8_0" || base == "Q8_KV" || base == "IQ6_K" ? base_ : Format("Q6_K");
  }

  // Whether layers are counted as tensors come, tensors of experts and shared experts alike.
  bool CountsAll() const { return very_low_ || std::string_view(recipe_.name) == "IQ2_KS"; }

  bool HasRule(Role role) const {
    return std::any_of(std::begin(kRules), std::end(kRules), [&](const Rule& rule) {
      return rule.role == role && Names(rule.recipes, recipe_.name);
    });
  }

  const FormatTraits& ByRules(Role role, int64_t index) const {
    // Layers of attn_v are counted as they come; all others relate to the model's number of layers.
    for (const Rule& rule : kRules) {
      if (rule.role != role || !(rule.recipes.empty() || Names(rule.recipes, recipe_.name)))
        continue;
      if (!IsThere(rule.where, index, model_.layers) || !IsMet(rule.need, model_)) continue;
      return Raised(role, rule.format != nullptr ? Format(rule.format) : base_);
    }
    return Raised(role, base_);
  }

  const FormatTraits& Raised(Role role, const FormatTraits& format) const {
    const std::string_view name = format.name;
    const bool raise = role == kAttnV && !very_low_ && HasSmallValues(model_) &&
                       (name == "Q3_K" || name == "Q4_K");
    return raise ? Format("Q5_K") : format;
  }

  const Recipe& recipe_;
  const RecipeModel& model_;
  const FormatTraits& base_;
  bool has_output_;
  bool very_low_;
  std::map<Role, int64_t> seen_;
};

char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::span<const Recipe> AllRecipes() { return kRecipes; }

const Recipe* FindRecipe(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), Upper);
  for (const auto& [short_name, meant] : kShortNames) {
    if (upper == short_name) upper = meant;
  }
  for (const Recipe& recipe : kRecipes) {
    if (upper == recipe.name) return &recipe;
  }
  return nullptr;
}

RecipeModel DescribeModel(const formats::GgufFile& file) {
  RecipeModel model;
  const auto arch = file.GetString("general.architecture");
  if (arch.ok() && arch->has_value()) model.arch = **arch;
  // A number, or the first of an array with one per layer.
  const auto number = [&](const char* key) -> int64_t {
    const formats::GgufValue* value = file.Find(fmt::format("{}.{}", model.arch, key));
    if (value == nullptr) return 0;
    if (const auto* array = std::get_if<formats::GgufArray>(&value->value)) {
      const bool readable =
          (array->type == formats::GgufType::kInt32 || array->type == formats::GgufType::kUint32) &&
          array->count > 0;
      int32_t first = 0;
      if (readable) std::memcpy(&first, array->data, sizeof first);
      return first;
    }
    const auto plain = file.GetU32(fmt::format("{}.{}", model.arch, key));
    return plain.ok() ? plain->value_or(0) : 0;
  };
  model.layers = number("block_count");
  model.experts = number("expert_count");
  model.heads = number("attention.head_count");
  model.kv_heads = number("attention.head_count_kv");
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  const GgufTensor* embedding = file.FindTensor(kEmbeddingName);
  model.embedding_columns = embedding != nullptr ? embedding->dims[0] : 0;
  model.makes_vectors = file.Find(fmt::format("{}.pooling_type", model.arch)) != nullptr &&
                        file.FindTensor(kOutputName) == nullptr;
  if (const formats::GgufValue* tokens = file.Find("tokenizer.ggml.tokens")) {
    if (const auto* array = std::get_if<formats::GgufArray>(&tokens->value)) {
      model.vocabulary = static_cast<int64_t>(array->count);
    }
  }
  return model;
}

const FormatTraits& FittingFormat(const FormatTraits& wanted, int64_t columns) {
  constexpr std::pair<std::string_view, const char*> kNext[] = {
      {"TQ1_0", "Q4_0"},     {"TQ2_0", "Q4_0"},    {"IQ1_S", "IQ4_NL"},   {"IQ1_M", "IQ4_NL"},
      {"IQ2_XXS", "IQ4_NL"}, {"IQ2_XS", "IQ4_NL"}, {"IQ2_S", "IQ4_NL"},   {"IQ3_XXS", "IQ4_NL"},
      {"IQ3_S", "IQ4_NL"},   {"IQ4_XS", "IQ4_NL"}, {"Q2_K", "IQ4_NL"},    {"Q3_K", "IQ4_NL"},
      {"Q4_K", "Q5_0"},      {"Q5_K", "Q5_1"},     {"Q6_K", "Q8_0"},      {"NVFP4", "IQ4_NL"},
      {"Q1_0", "Q4_0"},      {"Q2_0", "Q4_0"},     {"IQ2_K", "IQ4_NL"},   {"IQ3_K", "IQ4_NL"},
      {"IQ4_K", "Q5_0"},     {"IQ5_K", "Q6_0"},    {"IQ6_K", "Q8_0"},     {"IQ2_KS", "IQ4_NL"},
      {"IQ2_KL", "IQ4_NL"},  {"IQ3_KS", "IQ4_NL"}, {"IQ4_KSS", "IQ4_NL"}, {"IQ4_KS", "IQ4_NL"},
      {"IQ5_KS", "Q5_0"},    {"IQ1_BN", "Q4_0"},   {"IQ2_BN", "Q4_0"},    {"IQ1_KT", "IQ4_NL"},
      {"IQ2_KT", "IQ4_NL"},  {"IQ3_KT", "IQ4_NL"}, {"IQ4_KT", "IQ4_NL"},
  };
  if (columns % wanted.block_values == 0) return wanted;
  for (const auto& [name, next] : kNext) {
    if (name == wanted.name && columns % Format(next).block_values == 0) return Format(next);
  }
  return Format("F16");
}

const FormatTraits& FittingFormat(const Recipe& recipe, const RecipeModel& model,
                                  const GgufTensor& tensor, const FormatTraits& wanted) {
  const int64_t columns = tensor.dims[0];
  const FormatTraits& base = Format(recipe.base);
  const FormatTraits& exact = Format("Q8_0");
  const bool is_mix = Names("Q4_K Q5_K ", base.name);
  const bool is_odd = columns % base.block_values != 0 && columns % exact.block_values == 0;
  const bool has_odd_embedding = model.embedding_columns % base.block_values != 0;
  if (!is_mix || !is_odd || !model.makes_vectors || !has_odd_embedding)
    return FittingFormat(wanted, columns);
  return tensor.name == kEmbeddingName ? FittingFormat(base, columns) : exact;
}

std::vector<const FormatTraits*> ApplyRecipe(const Recipe& recipe, const RecipeModel& model,
                                             std::span<const GgufTensor> tensors) {
  // Rules count layers, so tensors come in their order, whatever that of the file is.
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(LayerOf(tensors[a].name), tensors[a].name) <
           std::tuple(LayerOf(tensors[b].name), tensors[b].name);
  });
  const bool has_output = std::any_of(tensors.begin(), tensors.end(), [](const GgufTensor& tensor) {
    return tensor.name == kOutputName;
  });
  Chooser chooser(recipe, model, has_output);
  std::vector<const FormatTraits*> formats(tensors.size());
  for (const size_t i : order) {
    if (IsQuantizable(tensors[i])) formats[i] = &chooser.Choose(tensors[i]);
  }
  return formats;
}

}  // namespace kvant::quantize
