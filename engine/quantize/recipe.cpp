// Rules are rows of a table, one format per row: the first row that fits a tensor decides.
//
// Source of the facts: llama_tensor_get_type and llama_model_quantize_impl in llama.cpp, commit
// c392e5094, file src/llama-quant.cpp; tests/engine/recipes.json holds what that program made. Of
// the recipes of ik_llama.cpp (file types from 135 on): the same function there, August 2026.
#include "engine/quantize/recipe.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "base/result.h"
#include "engine/arch/family.h"

namespace kvant::quantize {
namespace {

using formats::GgufTensor;
using quant::FormatTraits;

// clang-format off
constexpr Recipe kRecipes[] = {
    {"IQ1_S",     24, "IQ1_S",   "1.56 bits; needs an importance matrix"},
    {"IQ1_M",     31, "IQ1_M",   "1.75 bits; needs an importance matrix"},
    {"Q1_0",      40, "Q1_0",    "1.125 bits, for models trained with signs"},
    {"TQ1_0",     36, "TQ1_0",   "1.69 bits, for models trained with ternary weights"},
    {"IQ1_BN",   136, "IQ1_BN",  "1.625 bits, the same, of ik_llama.cpp; decodes slowly"},
    {"TQ2_0",     37, "TQ2_0",   "2.06 bits, the same, faster"},
    {"IQ2_BN",   137, "IQ2_BN",  "2 bits, the same, of ik_llama.cpp"},
    {"IQ2_XXS",   19, "IQ2_XXS", "2.06 bits; needs an importance matrix"},
    {"Q2_0",      41, "Q2_0",    "2.25 bits, for models trained with four levels"},
    {"IQ2_XS",    20, "IQ2_XS",  "2.31 bits; needs an importance matrix"},
    {"IQ2_KS",   147, "IQ2_KS",  "2.2 bits, mixed; of ik_llama.cpp, as all with K and S or L"},
    {"IQ2_K",    138, "IQ2_K",   "2.4 bits, mixed with IQ3_K; of ik_llama.cpp, as all IQn_K"},
    {"IQ2_S",     28, "IQ2_XS",  "2.5 bits, mixed; needs an importance matrix"},
    {"IQ2_M",     29, "IQ2_S",   "2.7 bits, mixed; needs an importance matrix"},
    {"Q2_K_S",    21, "Q2_K",    "2.6 bits; poor without an importance matrix"},
    {"Q2_K",      10, "Q2_K",    "2.6 bits, mixed with Q3_K"},
    {"IQ2_KL",   155, "IQ2_KL",  "2.7 bits, mixed with IQ4_KS"},
    {"IQ3_XXS",   23, "IQ3_XXS", "3.06 bits, mixed with IQ2_S; needs an importance matrix"},
    {"IQ3_XS",    22, "IQ3_S",   "3.3 bits, mixed"},
    {"IQ3_KS",   154, "IQ3_KS",  "3.2 bits"},
    {"IQ3_K",    139, "IQ3_K",   "3.44 bits"},
    {"IQ3_S",     26, "IQ3_S",   "3.44 bits"},
    {"IQ3_M",     27, "IQ3_S",   "3.66 bits, mixed"},
    {"Q3_K_S",    11, "Q3_K",    "3.44 bits"},
    {"Q3_K_M",    12, "Q3_K",    "3.7 bits, mixed with Q4_K and Q5_K"},
    {"Q3_K_L",    13, "Q3_K",    "4 bits, mixed with Q5_K"},
    {"IQ3_KL",   146, "IQ3_K",   "4 bits, mixed with IQ4_KS"},
    {"IQ4_KSS",  148, "IQ4_KSS", "4 bits"},
    {"IQ4_KS",   145, "IQ4_KS",  "4.25 bits"},
    {"IQ4_XS",    30, "IQ4_XS",  "4.25 bits"},
    {"IQ4_NL",    25, "IQ4_NL",  "4.5 bits, for rows of any multiple of 32"},
    {"MXFP4_MOE", 38, "Q8_0",    "experts in MXFP4, the rest in Q8_0"},
    {"NVFP4",     39, "NVFP4",   "4.5 bits, small floats with finer scales"},
    {"IQ4_K",    140, "IQ4_K",   "4.5 bits"},
    {"Q4_0",       2, "Q4_0",    "4.5 bits, the fastest"},
    {"Q4_K_S",    14, "Q4_K",    "4.5 bits"},
    {"Q4_K_M",    15, "Q4_K",    "4.8 bits, mixed with Q6_K: the usual choice"},
    {"Q4_1",       3, "Q4_1",    "5 bits"},
    {"Q5_0",       8, "Q5_0",    "5.5 bits"},
    {"IQ5_KS",   150, "IQ5_KS",  "5.25 bits"},
    {"IQ5_K",    141, "IQ5_K",   "5.5 bits"},
    {"Q5_K_S",    16, "Q5_K",    "5.5 bits"},
    {"Q5_K_M",    17, "Q5_K",    "5.7 bits, mixed with Q6_K"},
    {"Q5_1",       9, "Q5_1",    "6 bits"},
    {"Q6_0",     135, "Q6_0",    "6.5 bits, for rows of any multiple of 32; of ik_llama.cpp"},
    {"Q6_K",      18, "Q6_K",    "6.6 bits"},
    {"IQ6_K",    142, "IQ6_K",   "6.6 bits"},
    {"Q8_KV",    149, "Q8_KV",   "8 bits, one scale for each row; of ik_llama.cpp"},
    {"Q8_0",       7, "Q8_0",    "8.5 bits, hardly to be told from F16"},
    {"F16",        1, "F16",     "16 bits"},
    {"BF16",      32, "BF16",    "16 bits, the range of F32"},
    {"F32",        0, "F32",     "32 bits"},
};
// clang-format on

constexpr std::pair<std::string_view, std::string_view> kShortNames[] = {
    {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

// ---- Families ----------------------------------------------------------------------------------

using arch::MixTraits;
using arch::SmallValues;

constexpr int64_t kLayersOf70B = 80;

// Architectures that are quantized, but are no family of engine/arch yet. The traits of families
// stand with them: whoever adds one of these moves its row there.
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

enum class Role : uint8_t {
  kEmbedding,
  kAttnV,
  kAttnK,
  kAttnQ,
  kFfnDown,
  kAttnOutput,
  kAttnQkv,
  kFfnGate,
  kFfnUp,
  kOther,
};

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

// Which layers a rule holds for. Layers are counted within the role where a model has no experts.
enum class Where : uint8_t {
  kAll,
  kFirst2,
  kFirst4,
  kFirst16th,
  kFirst8th,
  kMiddle,    // all but the first and the last eighth
  kMoreBits,  // the first and the last eighth, and every third layer between
};

enum class Need : uint8_t {
  kNone,
  kGrouped2,            // at least two heads share a kv head
  kGrouped4,            // at least four heads share a kv head
  kGrouped4OrExperts4,  // or there are at least four experts
  kExperts8,            // eight experts, as Mixtral has
  kImportance,
  kNoImportance,
  kOwnMix,  // the family has a mix of its own
};

struct Rule {
  std::string_view recipes;  // names with a space after each; "" for all
  Role role;
  Where where;
  Need need;
  const char* format;  // null: the base format
};

// Below about 2.7 bits other rules hold.
constexpr std::string_view kVeryLow = "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M ";

using enum Role;
using enum Where;
using enum Need;

// clang-format off
constexpr Rule kRules[] = {
    {"IQ2_XXS IQ2_XS IQ1_S IQ1_M ", kEmbedding,  kAll,       kNone,        "Q2_K"},
    {"IQ2_S IQ2_M IQ3_XXS ",        kEmbedding,  kAll,       kNone,        "IQ3_S"},
    {"TQ1_0 TQ2_0 Q2_0 ",           kEmbedding,  kAll,       kNone,        "Q4_K"},
    {"IQ1_BN IQ2_BN ",              kEmbedding,  kAll,       kNone,        "IQ4_NL"},

    {kVeryLow,                      kAttnV,      kAll,       kGrouped4OrExperts4, "Q4_K"},
    {"IQ2_S IQ2_M ",                kAttnV,      kAll,       kNone,        "IQ3_S"},
    {kVeryLow,                      kAttnV,      kAll,       kNone,        "Q2_K"},
    {"",                            kAttnV,      kAll,       kExperts8,    "Q8_0"},
    {"Q2_K Q2_K_S ",                kAttnV,      kAll,       kGrouped4,    "Q4_K"},
    {"Q2_K ",                       kAttnV,      kAll,       kNone,        "Q3_K"},
    {"IQ3_XXS IQ3_XS IQ3_S ",       kAttnV,      kAll,       kGrouped4,    "Q4_K"},
    {"IQ3_XXS ",                    kAttnV,      kAll,       kNoImportance, "IQ3_S"},
    {"IQ3_M ",                      kAttnV,      kAll,       kNone,        "Q4_K"},
    {"Q3_K_M ",                     kAttnV,      kFirst2,    kNone,        "Q5_K"},
    {"Q3_K_M ",                     kAttnV,      kAll,       kNone,        "Q4_K"},
    {"Q3_K_L ",                     kAttnV,      kAll,       kNone,        "Q5_K"},
    {"IQ4_NL IQ4_XS ",              kAttnV,      kAll,       kGrouped4,    "Q5_K"},
    {"Q4_K_M Q5_K_M ",              kAttnV,      kMoreBits,  kNone,        "Q6_K"},
    {"Q4_K_S ",                     kAttnV,      kFirst4,    kNone,        "Q5_K"},
    {"IQ2_K IQ3_K ",                kAttnV,      kAll,       kGrouped2,    "IQ4_K"},
    {"IQ2_K ",                      kAttnV,      kAll,       kNone,        "IQ3_K"},
    {"IQ2_KS ",                     kAttnV,      kAll,       kGrouped4OrExperts4, "IQ4_K"},
    {"IQ2_KS ",                     kAttnV,      kAll,       kGrouped2,    "IQ3_K"},
    {"IQ2_KL IQ3_KS ",              kAttnV,      kAll,       kGrouped2,    "IQ4_KS"},
    {"IQ3_KL ",                     kAttnV,      kAll,       kGrouped2,    "IQ5_K"},
    {"IQ3_KL ",                     kAttnV,      kAll,       kNone,        "IQ4_K"},
    {"IQ4_K IQ4_KS IQ4_KSS ",       kAttnV,      kAll,       kGrouped2,    "IQ5_K"},

    {kVeryLow,                      kAttnK,      kAll,       kExperts8,    "Q4_K"},
    {"",                            kAttnK,      kAll,       kExperts8,    "Q8_0"},
    {"IQ3_XS ",                     kAttnK,      kAll,       kNone,        "IQ3_XXS"},
    {"IQ3_XXS ",                    kAttnK,      kAll,       kNone,        "IQ2_S"},
    {"IQ3_XS ",                     kAttnQ,      kAll,       kNone,        "IQ3_XXS"},
    {"IQ3_XXS ",                    kAttnQ,      kAll,       kNone,        "IQ2_S"},

    {"IQ2_S IQ2_M ",                kFfnDown,    kFirst8th,  kNone,        "IQ3_S"},
    {kVeryLow,                      kFfnDown,    kFirst8th,  kNone,        "Q2_K"},
    {"Q2_K ",                       kFfnDown,    kAll,       kNone,        "Q3_K"},
    {"Q2_K_S ",                     kFfnDown,    kFirst8th,  kNone,        "Q4_K"},
    {"IQ3_XXS ",                    kFfnDown,    kFirst8th,  kNoImportance, "Q4_K"},
    {"IQ3_XXS ",                    kFfnDown,    kAll,       kNoImportance, "Q3_K"},
    {"Q3_K_M ",                     kFfnDown,    kFirst16th, kNone,        "Q5_K"},
    {"Q3_K_M ",                     kFfnDown,    kMoreBits,  kOwnMix,      "Q4_K"},
    {"Q3_K_M ",                     kFfnDown,    kAll,       kOwnMix,      "Q3_K"},
    {"Q3_K_M ",                     kFfnDown,    kAll,       kNone,        "Q4_K"},
    {"IQ3_M ",                      kFfnDown,    kFirst8th,  kNone,        "Q4_K"},
    {"IQ3_M ",                      kFfnDown,    kMoreBits,  kExperts8,    "Q4_K"},
    {"Q3_K_L ",                     kFfnDown,    kAll,       kOwnMix,      "Q4_K"},
    {"Q3_K_L ",                     kFfnDown,    kAll,       kNone,        "Q5_K"},
    {"Q4_K_M ",                     kFfnDown,    kFirst16th, kOwnMix,      "Q6_K"},
    {"Q4_K_M ",                     kFfnDown,    kMoreBits,  kOwnMix,      "Q5_K"},
    {"Q4_K_M ",                     kFfnDown,    kAll,       kOwnMix,      "Q4_K"},
    {"Q4_K_M Q5_K_M ",              kFfnDown,    kMoreBits,  kNone,        "Q6_K"},
    {"IQ3_KL ",                     kFfnDown,    kMoreBits,  kNone,        "IQ4_KS"},
    {"IQ4_KS IQ4_KSS ",             kFfnDown,    kFirst8th,  kNoImportance, "Q5_K"},
    {"IQ4_NL IQ4_XS ",              kFfnDown,    kFirst8th,  kNoImportance, "Q5_K"},
    {"Q4_K_S ",                     kFfnDown,    kAll,       kOwnMix,      "Q4_K"},
    {"Q4_K_S ",                     kFfnDown,    kFirst8th,  kNone,        "Q5_K"},
    {"Q4_0 ",                       kFfnDown,    kFirst8th,  kImportance,  "Q4_1"},
    {"Q5_0 ",                       kFfnDown,    kFirst8th,  kImportance,  "Q5_1"},

    {kVeryLow,                      kAttnOutput, kAll,       kExperts8,    "Q5_K"},
    {"IQ1_S IQ1_M ",                kAttnOutput, kAll,       kNone,        "IQ2_XXS"},
    {"IQ2_S IQ2_M ",                kAttnOutput, kAll,       kNone,        "IQ3_S"},
    {"Q3_K_L ",                     kAttnOutput, kAll,       kOwnMix,      "Q4_K"},
    {"",                            kAttnOutput, kAll,       kOwnMix,      nullptr},
    {"Q2_K IQ3_XS IQ3_XXS Q3_K_S Q3_K_M IQ4_NL Q4_K_S Q4_K_M IQ3_S IQ3_M IQ4_XS IQ2_K IQ3_K IQ4_K "
     "IQ3_KS IQ3_KL IQ4_KS IQ4_KSS IQ5_KS ",
                                    kAttnOutput, kAll,       kExperts8,    "Q5_K"},
    {"",                            kAttnOutput, kAll,       kExperts8,    nullptr},
    {"Q2_K ",                       kAttnOutput, kAll,       kNone,        "Q3_K"},
    {"IQ3_XXS ",                    kAttnOutput, kAll,       kNone,        "IQ3_S"},
    {"IQ2_K ",                      kAttnOutput, kAll,       kNone,        "IQ3_K"},
    {"IQ3_KL ",                     kAttnOutput, kAll,       kNone,        "IQ4_KS"},
    {"Q3_K_M IQ3_M ",               kAttnOutput, kAll,       kNone,        "Q4_K"},
    {"Q3_K_L ",                     kAttnOutput, kAll,       kNone,        "Q5_K"},

    {"Q3_K_M Q3_K_L IQ3_M ",        kAttnQkv,    kAll,       kNone,        "Q4_K"},
    {"Q4_K_M ",                     kAttnQkv,    kAll,       kNone,        "Q5_K"},
    {"Q5_K_M ",                     kAttnQkv,    kAll,       kNone,        "Q6_K"},
    {"IQ3_KL ",                     kFfnGate,    kMoreBits,  kNone,        "IQ4_KS"},
    {"IQ3_KL ",                     kFfnUp,      kMoreBits,  kNone,        "IQ4_KS"},
    {"IQ3_XS ",                     kFfnGate,    kMiddle,    kNone,        "IQ3_XXS"},
    {"IQ3_XS ",                     kFfnUp,      kMiddle,    kNone,        "IQ3_XXS"},
};
// clang-format on

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

bool IsMet(Need need, const RecipeModel& model) {
  const int64_t shared = model.kv_heads > 0 ? model.heads / model.kv_heads : 1;
  const bool grouped = shared >= 4;
  switch (need) {
    case kNone: return true;
    case kGrouped2: return shared >= 2;
    case kGrouped4: return grouped;
    case kGrouped4OrExperts4: return grouped || model.experts >= 4;
    case kExperts8: return model.experts == 8;
    case kImportance: return model.has_importance;
    case kNoImportance: return !model.has_importance;
    case kOwnMix: return MixOf(model).own_mix;
  }
  return false;
}

const FormatTraits& Format(std::string_view name) {
  const FormatTraits* format = quant::FindFormat(name);
  KVANT_CHECK(format != nullptr);
  return *format;
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
    const Role role = RoleOf(tensor.name);
    const int64_t ordinal = role == kOther ? 0 : seen_[role]++;
    const bool by_name = model_.experts > 1 && !very_low_ &&
                         (role == kFfnDown || role == kFfnGate || role == kFfnUp);
    return ByRules(role, by_name ? LayerOf(tensor.name) : ordinal);
  }

 private:
  // The format of the output matrix, also where the embedding serves as one.
  const FormatTraits& OutputFormat(const GgufTensor& tensor) const {
    if (MixOf(model_).own_mix || tensor.dims[0] % base_.block_values != 0) {
      return Format("Q8_0");
    }
    if (very_low_ || std::string_view(recipe_.name) == "IQ3_XXS") return Format("Q5_K");
    if (Names("IQ2_KS IQ2_K IQ2_KL IQ3_KS IQ3_K ", recipe_.name)) {
      return Format(has_output_ ? "Q5_K" : "IQ4_K");
    }
    if (!has_output_ && Names("IQ3_KL IQ4_KS IQ4_KSS ", recipe_.name)) return Format("IQ5_K");
    const std::string_view base = base_.name;
    return base == "Q8_0" || base == "Q8_KV" || base == "IQ6_K" ? base_ : Format("Q6_K");
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
      {"IQ5_KS", "Q5_0"},    {"IQ1_BN", "Q4_0"},   {"IQ2_BN", "Q4_0"},
  };
  if (columns % wanted.block_values == 0) return wanted;
  for (const auto& [name, next] : kNext) {
    if (name == wanted.name && columns % Format(next).block_values == 0) return Format(next);
  }
  return Format("F16");
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
