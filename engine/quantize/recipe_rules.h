// The names of quantization recipes, and the rules that give tensors another format than a recipe's
// base: data of engine/quantize/recipe.cpp.
//
// Rules are rows of a table, one format per row: the first row that fits a tensor decides.
//
// Source of the facts: llama_tensor_get_type and llama_model_quantize_impl in llama.cpp, commit
// c392e5094, file src/llama-quant.cpp; tests/engine/quantize/recipes.json holds what that program
// made. Source for the recipes of ik_llama.cpp (file types from 135 on): the function of that name
// there, August 2026.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/quantize/recipe.h"

namespace kvant::quantize {

// clang-format off
inline constexpr Recipe kRecipes[] = {
    {"IQ1_S",     24, "IQ1_S",   "1.56 bits; needs an importance matrix"},
    {"IQ1_M",     31, "IQ1_M",   "1.75 bits; needs an importance matrix"},
    {"IQ1_KT",   156, "IQ1_KT",  "1.75 bits; needs an importance matrix; of ik_llama.cpp: all KT"},
    {"Q1_0",      40, "Q1_0",    "1.125 bits, for models trained with weights of -1 and 1"},
    {"TQ1_0",     36, "TQ1_0",   "1.69 bits, for models trained with ternary weights"},
    {"IQ1_BN",   136, "IQ1_BN",  "1.625 bits, ternary weights; of ik_llama.cpp; decodes slowly"},
    {"TQ2_0",     37, "TQ2_0",   "2.06 bits, for ternary weights; faster than TQ1_0"},
    {"IQ2_BN",   137, "IQ2_BN",  "2 bits, for ternary weights; of ik_llama.cpp"},
    {"IQ2_XXS",   19, "IQ2_XXS", "2.06 bits; needs an importance matrix"},
    {"Q2_0",      41, "Q2_0",    "2.25 bits, for models trained with weights of four levels"},
    {"IQ2_XS",    20, "IQ2_XS",  "2.31 bits; needs an importance matrix"},
    {"IQ2_KT",   151, "IQ2_KT",  "2.2 bits, mixed with IQ3_K; needs an importance matrix"},
    {"IQ2_KS",   147, "IQ2_KS",  "2.2 bits, mixed; of ik_llama.cpp: all KS, KSS, KL"},
    {"IQ2_K",    138, "IQ2_K",   "2.4 bits, mixed with IQ3_K; of ik_llama.cpp: all IQn_K"},
    {"IQ2_S",     28, "IQ2_XS",  "2.5 bits, mixed; needs an importance matrix"},
    {"IQ2_M",     29, "IQ2_S",   "2.7 bits, mixed; needs an importance matrix"},
    {"Q2_K_S",    21, "Q2_K",    "2.6 bits; poor without an importance matrix"},
    {"Q2_K",      10, "Q2_K",    "2.6 bits, mixed with Q3_K"},
    {"IQ2_KL",   155, "IQ2_KL",  "2.7 bits, mixed with IQ4_KS"},
    {"IQ3_XXS",   23, "IQ3_XXS", "3.06 bits, mixed with IQ2_S; needs an importance matrix"},
    {"IQ3_KT",   152, "IQ3_KT",  "3.1 bits, mixed with IQ3_K and IQ4_K"},
    {"IQ3_XS",    22, "IQ3_S",   "3.3 bits, mixed"},
    {"IQ3_KS",   154, "IQ3_KS",  "3.2 bits"},
    {"IQ3_K",    139, "IQ3_K",   "3.44 bits"},
    {"IQ3_S",     26, "IQ3_S",   "3.44 bits"},
    {"IQ3_M",     27, "IQ3_S",   "3.66 bits, mixed"},
    {"Q3_K_S",    11, "Q3_K",    "3.44 bits"},
    {"Q3_K_M",    12, "Q3_K",    "3.7 bits, mixed with Q4_K and Q5_K"},
    {"Q3_K_L",    13, "Q3_K",    "4 bits, mixed with Q5_K"},
    {"IQ3_KL",   146, "IQ3_K",   "4 bits, mixed with IQ4_KS"},
    {"IQ4_KT",   153, "IQ4_KT",  "4 bits, mixed with IQ4_K or IQ5_K"},
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
    {"Q8_0",       7, "Q8_0",    "8.5 bits, nearly as exact as F16"},
    {"F16",        1, "F16",     "16 bits"},
    {"BF16",      32, "BF16",    "16 bits, the range of F32"},
    {"F32",        0, "F32",     "32 bits"},
};
// clang-format on

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
  kSharedExpert,  // has the role of its name, but in recipes with rules for it
  kOther,
};

// Says which layers a rule holds for. Layers are counted within the role where a model has no
// experts.
enum class Where : uint8_t {
  kAll,
  kFirst2,
  kFirst4,
  kFirst16th,
  kFirst8th,
  kFirst,
  kMiddle,    // all but the first and the last eighth
  kMoreBits,  // the first and the last eighth, and every third layer between
};

enum class Need : uint8_t {
  kNone,
  kGrouped2,            // at least two heads share a kv head
  kGrouped4,            // at least four heads share a kv head
  kGrouped4OrExperts4,  // or there are at least four experts
  kExperts4,            // at least four experts
  kExperts8,            // eight experts, as Mixtral has
  kExperts8OrMore,
  kImportance,
  kNoImportance,
  kOwnMix,         // the family has a mix of its own
  kSmallValues,    // 80 layers, of a family whose attn_v is small then
  kBigVocabulary,  // at least 127999 tokens, and 32 or 80 layers: Llama 3 of 8B and 70B
};

struct Rule {
  std::string_view recipes;  // names with a space after each; "" for all
  Role role;
  Where where;
  Need need;
  const char* format;  // null: the base format
};

// Below about 2.7 bits other rules hold.
inline constexpr std::string_view kVeryLow = "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M ";

// The recipes of ik_llama.cpp, whose rules come before the others; IQ2_KS and IQ2_KT have their
// own.
inline constexpr std::string_view kOfIk =
    "IQ1_KT IQ2_K IQ2_KL IQ3_KT IQ3_KS IQ3_K IQ3_KL IQ4_KT IQ4_KSS IQ4_KS IQ4_K IQ5_KS IQ5_K Q6_0 "
    "IQ6_K Q8_KV IQ1_BN IQ2_BN ";
inline constexpr std::string_view kOfIkVeryLow = "IQ2_KS IQ2_KT ";

using enum Role;
using enum Where;
using enum Need;

// clang-format off
inline constexpr Rule kRules[] = {
    {"IQ2_XXS IQ2_XS IQ1_S IQ1_M ", kEmbedding,  kAll,       kNone,        "Q2_K"},
    {"IQ2_S IQ2_M IQ3_XXS ",        kEmbedding,  kAll,       kNone,        "IQ3_S"},
    {"TQ1_0 TQ2_0 Q2_0 ",           kEmbedding,  kAll,       kNone,        "Q4_K"},
    {"IQ1_BN IQ2_BN ",              kEmbedding,  kAll,       kNone,        "IQ4_NL"},
    {"IQ3_KT ",                     kEmbedding,  kAll,       kNone,        "IQ3_S"},

    {kOfIkVeryLow,                  kAttnV,      kAll,       kGrouped4OrExperts4, "IQ4_K"},
    {kOfIkVeryLow,                  kAttnV,      kAll,       kGrouped2,    "IQ3_K"},
    {kOfIkVeryLow,                  kAttnV,      kAll,       kNone,        "Q2_K"},
    {kOfIkVeryLow,                  kAttnK,      kAll,       kExperts8OrMore, "Q4_K"},
    {kOfIkVeryLow,                  kAttnQ,      kAll,       kExperts8OrMore, "Q4_K"},
    {"IQ2_KS ",                     kAttnQkv,    kAll,       kNone,        "IQ2_K"},
    {"IQ2_KS ",                     kFfnDown,    kFirst8th,  kNone,        "Q2_K"},
    {kOfIkVeryLow,                  kAttnOutput, kAll,       kExperts4,    "Q5_K"},
    {"IQ2_KS ",                     kAttnOutput, kAll,       kNone,        nullptr},
    {"IQ2_KT ",                     kFfnDown,    kFirst,     kExperts8OrMore, "IQ3_K"},
    {"IQ2_KT ",                     kFfnGate,    kFirst,     kExperts8OrMore, "IQ3_K"},
    {"IQ2_KT ",                     kFfnUp,      kFirst,     kExperts8OrMore, "IQ3_K"},
    {"IQ2_KT ",                     kSharedExpert, kAll,     kNone,        "IQ4_K"},
    {"IQ2_KT ",                     kAttnQkv,    kAll,       kNone,        "IQ3_K"},
    {"IQ2_KT ",                     kFfnDown,    kFirst8th,  kNone,        "IQ3_K"},
    {"IQ2_KT ",                     kAttnOutput, kAll,       kNone,        "IQ3_K"},

    {kOfIk,                         kAttnV,      kAll,       kExperts4,    "Q8_0"},
    {"IQ3_K IQ3_KL ",               kAttnV,      kAll,       kSmallValues, "IQ5_K"},
    {kOfIk,                         kAttnV,      kAll,       kSmallValues, nullptr},
    {"IQ3_KT ",                     kAttnV,      kAll,       kGrouped4,    "IQ4_K"},
    {"IQ3_KT ",                     kAttnV,      kAll,       kNone,        "IQ3_K"},
    {"IQ4_KT ",                     kAttnV,      kAll,       kGrouped4,    "IQ5_K"},
    {"IQ4_KT ",                     kAttnV,      kAll,       kNone,        "IQ4_K"},
    {"IQ5_K IQ5_KS ",               kAttnV,      kAll,       kBigVocabulary, "IQ6_K"},
    {kOfIk,                         kAttnK,      kAll,       kExperts4,    "Q8_0"},
    {"IQ5_K ",                      kAttnQ,      kAll,       kBigVocabulary, "IQ4_K"},
    {"IQ5_KS ",                     kAttnQ,      kAll,       kBigVocabulary, "IQ4_KS"},
    {"IQ3_KT ",                     kFfnDown,    kFirst8th,  kNoImportance, "IQ4_K"},
    {"IQ3_KT ",                     kFfnDown,    kAll,       kNoImportance, "IQ3_K"},
    {kOfIk,                         kAttnOutput, kAll,       kOwnMix,      nullptr},
    {"IQ2_KL ",                     kAttnOutput, kAll,       kExperts4,    "IQ4_KS"},
    {"IQ2_K IQ3_KT IQ3_KS IQ3_K IQ3_KL IQ4_KSS IQ4_KS IQ4_K IQ5_KS ",
                                    kAttnOutput, kAll,       kExperts4,    "Q5_K"},
    {kOfIk,                         kAttnOutput, kAll,       kExperts4,    nullptr},
    {"IQ3_KT ",                     kAttnOutput, kAll,       kGrouped4,    "IQ3_K"},

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
    {"Q2_K IQ3_XS IQ3_XXS Q3_K_S Q3_K_M IQ4_NL Q4_K_S Q4_K_M IQ3_S IQ3_M IQ4_XS ",
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

}  // namespace kvant::quantize
