// Recipes against the tensor types that llama-quantize gave to models of the same structure
// (tests/reference/make_recipe_fixtures.py).
#include "engine/quantize/recipe.h"
#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace kvant::quantize {
namespace {

using nlohmann::json;

json Fixtures(const char* name) {
  return json::parse(std::ifstream(std::string(KVANT_SOURCE_DIR "/tests/engine/quantize/") + name));
}

// The tensors of a fixture's model; names live in `names`.
std::vector<formats::GgufTensor> Tensors(const json& shapes, std::vector<std::string>& names) {
  names.reserve(shapes.size());
  std::vector<formats::GgufTensor> tensors;
  for (const json& entry : shapes) {
    formats::GgufTensor& tensor = tensors.emplace_back();
    tensor.name = names.emplace_back(entry[0].get<std::string>());
    tensor.format = quant::FindFormat("F32");
    for (const json& size : entry[1]) tensor.dims[tensor.n_dims++] = size.get<int64_t>();
  }
  return tensors;
}

// `least`: how many tensors must have been compared.
void CompareTypes(const json& all, int64_t least) {
  int64_t compared = 0;
  for (const json& fixture : all.at("fixtures")) {
    const std::string title = fixture.at("model");
    std::vector<std::string> names;
    const auto tensors = Tensors(all.at("tensors").at(title), names);
    RecipeModel model{.arch = fixture.at("arch"),
                      .layers = fixture.at("layers"),
                      .experts = fixture.at("experts"),
                      .heads = fixture.at("heads"),
                      .kv_heads = fixture.at("kv_heads"),
                      .has_importance = fixture.at("importance")};
    for (const auto& [recipe_name, codes] : fixture.at("results").items()) {
      if (codes.is_null()) continue;
      SCOPED_TRACE(title + ", " + recipe_name + (model.has_importance ? ", weighed" : ""));
      const Recipe* recipe = FindRecipe(recipe_name);
      ASSERT_NE(recipe, nullptr);
      const auto formats = ApplyRecipe(*recipe, model, tensors);
      const std::string expected = codes;
      ASSERT_EQ(expected.size(), tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        const std::string type = all.at("types")[static_cast<size_t>(expected[i] - 'A')];
        const char* chosen =
            formats[i] != nullptr ? FittingFormat(*formats[i], tensors[i].dims[0]).name : "F32";
        // Where Q5_K does not fit, ik_llama.cpp takes Q6_0, and kvant Q5_1 in all mixes.
        if (std::string(chosen) == "Q5_1" && type == "Q6_0") continue;
        EXPECT_EQ(chosen, type) << names[i];
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, least);
}

TEST(Recipe, GivesTheTypesOfLlamaQuantize) { CompareTypes(Fixtures("recipes.json"), 50000); }

TEST(Recipe, GivesTheTypesOfIkLlama) { CompareTypes(Fixtures("recipes_ik.json"), 30000); }

TEST(Recipe, IsFoundByNameInAnyCase) {
  EXPECT_STREQ(FindRecipe("q4_k_m")->name, "Q4_K_M");
  EXPECT_EQ(FindRecipe("Q4_K"), FindRecipe("Q4_K_M"));
  EXPECT_EQ(FindRecipe("Q4_K_X"), nullptr);
  EXPECT_EQ(FindRecipe(""), nullptr);
  for (const Recipe& recipe : AllRecipes()) {
    EXPECT_EQ(FindRecipe(recipe.name), &recipe);
    EXPECT_NE(quant::FindFormat(recipe.base), nullptr) << recipe.name;
  }
}

// No llama-quantize of February 2025 knows these; the rule is their definition.
TEST(Recipe, PutsExpertsAloneIntoMxfp4) {
  const json all = Fixtures("recipes.json");
  std::vector<std::string> names;
  const auto tensors = Tensors(all.at("tensors").at("mixtral"), names);
  const auto formats =
      ApplyRecipe(*FindRecipe("MXFP4_MOE"), {.arch = "llama", .layers = 16}, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (formats[i] == nullptr) continue;
    EXPECT_STREQ(formats[i]->name, names[i].find("_exps") != std::string::npos ? "MXFP4" : "Q8_0");
  }
}

TEST(Recipe, FallsBackToWhatRowsCanHold) {
  const auto fitting = [](const char* wanted, int64_t columns) {
    return std::string(FittingFormat(*quant::FindFormat(wanted), columns).name);
  };
  EXPECT_EQ(fitting("Q4_K", 256), "Q4_K");
  EXPECT_EQ(fitting("Q4_K", 288), "Q5_0");
  EXPECT_EQ(fitting("Q6_K", 32), "Q8_0");
  EXPECT_EQ(fitting("Q6_K", 33), "F16");
  EXPECT_EQ(fitting("Q4_0", 16), "F16");
  EXPECT_EQ(fitting("F32", 1), "F32");
}

// The rows that pass through a model for vectors get more bits than its embedding.
TEST(Recipe, SparesTheEmbeddingOfModelsForVectors) {
  static constexpr const char* kQuery = "blk.0.attn_q.weight";
  static constexpr const char* kTokens = "token_embd.weight";
  int64_t of_embedding = 384;
  const auto fitting = [&](const char* recipe, bool makes_vectors, const char* name,
                           int64_t columns, const char* wanted) {
    formats::GgufTensor tensor;
    tensor.name = name;
    tensor.dims[0] = columns;
    tensor.dims[1] = 64;
    const RecipeModel model{.arch = "bert",
                            .layers = 6,
                            .embedding_columns = name == kTokens ? columns : of_embedding,
                            .makes_vectors = makes_vectors};
    return std::string(
        FittingFormat(*FindRecipe(recipe), model, tensor, *quant::FindFormat(wanted)).name);
  };
  EXPECT_EQ(fitting("Q4_K_M", true, kQuery, 384, "Q4_K"), "Q8_0");
  EXPECT_EQ(fitting("Q4_K_S", true, kQuery, 384, "Q5_K"), "Q8_0");
  EXPECT_EQ(fitting("Q4_K_M", true, kTokens, 384, "Q8_0"), "Q5_0");
  EXPECT_EQ(fitting("Q5_K_M", true, kTokens, 384, "Q8_0"), "Q5_1");
  EXPECT_EQ(fitting("Q6_K", true, kTokens, 384, "Q8_0"), "Q8_0");
  EXPECT_EQ(fitting("Q3_K_M", true, kQuery, 384, "Q3_K"), "IQ4_NL");
  EXPECT_EQ(fitting("Q4_K_M", true, kQuery, 768, "Q4_K"), "Q4_K");
  EXPECT_EQ(fitting("Q4_K_M", true, kTokens, 768, "Q6_K"), "Q6_K");
  EXPECT_EQ(fitting("Q4_K_M", true, kQuery, 40, "Q4_K"), "F16");
  EXPECT_EQ(fitting("Q4_K_M", false, kQuery, 384, "Q4_K"), "Q5_0");
  EXPECT_EQ(fitting("Q4_K_M", false, kTokens, 384, "Q8_0"), "Q8_0");
  // An embedding that keeps its type leaves nothing to spend on the other matrices.
  of_embedding = 768;
  EXPECT_EQ(fitting("Q4_K_M", true, "blk.0.ffn_down.weight", 1152, "Q4_K"), "Q5_0");
}

}  // namespace
}  // namespace kvant::quantize
