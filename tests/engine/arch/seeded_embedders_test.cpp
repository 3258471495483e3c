// Embedding models and rerankers of many families from Hugging Face folders to rows, vectors and
// logits: small random models and what transformers or their published definitions compute from
// them, by tests/reference/make_seeded_embedders.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/dispatch.h"
#include "formats/npy.h"
#include "kvant/embed.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

// Roundings of 32-bit floats on rows of a few units.
constexpr double kEmbedderTolerance = 1e-4;

class SeededEmbedders : public testing::TestWithParam<std::string> {
 protected:
  SeededModel seeded_{kSeededEmbedders + GetParam()};

  EmbedTokens Source() const { return {seeded_.Source(), seeded_.Types()}; }
};

INSTANTIATE_TEST_SUITE_P(Reference, SeededEmbedders,
                         testing::ValuesIn(SeededModelNames(kSeededEmbedders)),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

std::unique_ptr<Embedder> OpenEmbedder(std::shared_ptr<const Model> model,
                                       std::optional<Pooling> pooling = {}) {
  auto embedder = Embedder::Create(std::move(model), {.threads = 2, .pooling = pooling});
  EXPECT_TRUE(embedder.ok()) << embedder.error().message;
  return embedder.ok() ? std::move(*embedder) : nullptr;
}

// The vectors of one text; without pooling its rows.
std::vector<float> EmbeddedRows(Embedder& embedder, const EmbedTokens& text, double normalize) {
  const auto found = embedder.Embed({&text, 1}, {.normalize = normalize});
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? found->values : std::vector<float>();
}

std::vector<std::string> UsableIsas() {
  std::vector<std::string> names;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (isa.compiled && isa.supported) names.emplace_back(isa.name);
  }
  return names;
}

bool IsNormalized(const std::vector<float>& vector) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  return std::abs(squares - 1) < 1e-5;
}

TEST_P(SeededEmbedders, RowsAndVectorsAreThoseOfTheReferenceOnEveryInstructionSet) {
  const auto rows = formats::NpyRead(seeded_.EncodedPath());
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const std::vector<float> vector = seeded_.Vector();
  for (const std::string& isa : UsableIsas()) {
    ModelOptions options;
    options.isa = isa;
    const auto model = seeded_.Open(options);
    ASSERT_NE(model, nullptr);
    const auto by_row = OpenEmbedder(model, Pooling::kNone);
    ASSERT_NE(by_row, nullptr);
    const std::vector<float> found = EmbeddedRows(*by_row, Source(), -1);
    ASSERT_EQ(found.size(), rows->values.size()) << isa;
    EXPECT_LE(MaxDifference(found, rows->values), kEmbedderTolerance) << isa;
    if (vector.empty()) continue;
    const auto embedder = OpenEmbedder(model);
    ASSERT_NE(embedder, nullptr);
    const double normalize = IsNormalized(vector) ? 2 : -1;
    const std::vector<float> pooled = EmbeddedRows(*embedder, Source(), normalize);
    ASSERT_EQ(pooled.size(), vector.size()) << isa;
    EXPECT_LE(MaxDifference(pooled, vector), kEmbedderTolerance) << isa;
  }
}

TEST_P(SeededEmbedders, LogitsAreThoseOfTheReference) {
  const std::vector<float> logits = seeded_.Logits();
  if (logits.empty()) GTEST_SKIP() << "the model makes no scores";
  for (const std::string& isa : UsableIsas()) {
    ModelOptions options;
    options.isa = isa;
    const auto embedder = OpenEmbedder(seeded_.Open(options));
    ASSERT_NE(embedder, nullptr);
    EXPECT_EQ(embedder->pooling(), Pooling::kRank);
    const EmbedTokens source = Source();
    const auto ranking = embedder->Rank({&source, 1});
    ASSERT_TRUE(ranking.ok()) << ranking.error().message;
    ASSERT_EQ(ranking->logits.size(), logits.size());
    EXPECT_LE(MaxDifference(ranking->logits, logits), kEmbedderTolerance) << isa;
  }
}

// Texts in one pass do not see each other, whatever their layers are.
TEST_P(SeededEmbedders, CompanyChangesNoBit) {
  const auto embedder = OpenEmbedder(seeded_.Open(), Pooling::kNone);
  ASSERT_NE(embedder, nullptr);
  std::vector<EmbedTokens> texts;
  for (const int count : {5, 23, 1, 40}) {
    texts.push_back({RandomTokens(count, static_cast<uint32_t>(count), 64), {}});
  }
  const auto together = embedder->Embed(texts);
  ASSERT_TRUE(together.ok()) << together.error().message;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<float> alone = EmbeddedRows(*embedder, texts[i], -1);
    const auto rows = together->RowsOf(static_cast<int64_t>(i));
    EXPECT_TRUE(std::ranges::equal(alone, rows)) << i;
  }
}

TEST(SeededEmbedder, FilesSayWhatFoldersDo) {
  SeededModel seeded(std::string(kSeededEmbedders) + "gemma-embedding");
  seeded.files["config_sentence_transformers.json"] = {
      {"prompts",
       {{"query", "task: search result | query: "}, {"document", "title: none | text: "}}},
      {"default_prompt_name", "document"}};
  seeded.files["sentence_bert_config.json"] = {{"max_seq_length", 30}};
  const auto embedder = OpenEmbedder(seeded.Open());
  ASSERT_NE(embedder, nullptr);
  EXPECT_EQ(embedder->pooling(), Pooling::kMean);
  EXPECT_EQ(embedder->context(), 30);
  ASSERT_EQ(embedder->prompts().size(), 2u);
  EXPECT_EQ(embedder->default_prompt(), "document");
  EXPECT_EQ(*embedder->PromptText("query"), "task: search result | query: ");
}

// Older folders have the model and its greatest length in a folder of their own.
TEST(SeededEmbedder, ModelsMayLieInAFolderOfTheirOwn) {
  SeededModel seeded(std::string(kSeededEmbedders) + "bert");
  seeded.model_folder = "0_Transformer";
  seeded.files["modules.json"][0]["path"] = seeded.model_folder;
  seeded.files["0_Transformer/sentence_bert_config.json"] = {{"max_seq_length", 50}};
  const auto embedder = OpenEmbedder(seeded.Open());
  ASSERT_NE(embedder, nullptr);
  EXPECT_EQ(embedder->context(), 50);
  const EmbedTokens source{seeded.Source(), seeded.Types()};
  const std::vector<float> vector = seeded.Vector();
  const std::vector<float> found = EmbeddedRows(*embedder, source, 2);
  ASSERT_EQ(found.size(), vector.size());
  EXPECT_LE(MaxDifference(found, vector), kEmbedderTolerance);
}

// Settings of folders that cannot be followed are named.
struct EmbedderSetting {
  const char* model;
  const char* file;  // "": config.json
  const char* pointer;
  nlohmann::json value;
  const char* expected;
};

void PrintTo(const EmbedderSetting& setting, std::ostream* out) {
  *out << setting.model << " " << setting.file << setting.pointer;
}

class EmbedderSettings : public testing::TestWithParam<EmbedderSetting> {};

TEST_P(EmbedderSettings, AreNamedWhereTheyAreWrong) {
  SeededModel seeded(std::string(kSeededEmbedders) + GetParam().model);
  const std::string file = GetParam().file;
  nlohmann::json& changed = file.empty() ? seeded.config : seeded.files[file];
  changed[nlohmann::json::json_pointer(GetParam().pointer)] = GetParam().value;
  EXPECT_THAT(seeded.Message(), HasSubstr(GetParam().expected));
}

constexpr const char* kModulesFile = "modules.json";
constexpr const char* kPoolingFile = "1_Pooling/config.json";

INSTANTIATE_TEST_SUITE_P(
    Wrong, EmbedderSettings,
    testing::Values(
        EmbedderSetting{"bert", "", "/position_embedding_type", "relative_key", "relative_key"},
        EmbedderSetting{"bert", "", "/is_decoder", true, "is_decoder: true"},
        EmbedderSetting{"bert", "", "/hidden_act", "mish", "hidden_act \"mish\""},
        EmbedderSetting{"bert", "", "/type_vocab_size", 3, "has shape [2, 32]"},
        EmbedderSetting{"bert-rank", "", "/id2label", {{"0", "a"}, {"1", "b"}}, "[1, 32]"},
        EmbedderSetting{"bert-roberta", "", "/pad_token_id", 65, "at least 67"},
        EmbedderSetting{"bert-roberta", "", "/max_position_embeddings", 64, "has shape [66, 32]"},
        EmbedderSetting{"modern-bert", "", "/layer_types", {"full_attention"}, "layer_types"},
        EmbedderSetting{"modern-bert", "", "/hidden_activation", "mish", "\"mish\""},
        EmbedderSetting{"modern-bert-rank", "", "/classifier_pooling", "max", "cls or mean"},
        EmbedderSetting{"modern-bert", "", "/global_attn_every_n_layers", 0, "at least 1"},
        EmbedderSetting{"nomic-bert", "", "/prenorm", true, "prenorm: true"},
        EmbedderSetting{"nomic-bert", "", "/rotary_emb_fraction", 0.5, "rotary_emb_fraction"},
        EmbedderSetting{"nomic-bert", "", "/activation_function", "gelu", "\"gelu\""},
        EmbedderSetting{"nomic-bert-moe", "", "/num_shared_experts", 1, "num_shared_experts"},
        EmbedderSetting{"nomic-bert-moe", "", "/expert_choice_router", true, "expert_choice"},
        EmbedderSetting{"nomic-bert-moe", "", "/num_experts", 7, "has shape [8, 32]"},
        EmbedderSetting{"jina-bert-v2", "", "/position_embedding_type", "absolute", "alibi"},
        EmbedderSetting{"jina-bert-v2", "", "/feed_forward_type", "original", "\"original\""},
        EmbedderSetting{"neo-bert", "", "/hidden_act", "GELU", "\"GELU\""},
        EmbedderSetting{"eurobert-rank", "", "/classifier_pooling", "max", "late, mean or bos"},
        EmbedderSetting{"gemma-embedding", "", "/use_bidirectional_attention", false, "vectors"},
        EmbedderSetting{"qwen3-rank", "", "/head_dim", nullptr, "head_dim"},
        EmbedderSetting{"bert", kModulesFile, "/0/type", "models.CNN", "models.CNN"},
        EmbedderSetting{"bert", kModulesFile, "/0/path", "0_Other", "0_Other/config.json"},
        EmbedderSetting{"bert", kModulesFile, "/2/type", "models.SpladePooling", "SpladePooling"},
        EmbedderSetting{"bert", kPoolingFile, "/pooling_mode_max_tokens", true, "max_tokens"},
        EmbedderSetting{"bert", kPoolingFile, "/pooling_mode_mean_tokens", false, "found none"},
        EmbedderSetting{"bert", kPoolingFile, "/include_prompt", false, "include_prompt"},
        EmbedderSetting{"bert", kPoolingFile, "/pooling_mode", "weightedmean", "weightedmean"},
        EmbedderSetting{"bert-distil", "2_Dense/config.json", "/activation_function",
                        "torch.nn.modules.activation.GELU", "activation.GELU"},
        EmbedderSetting{"bert-distil", "2_Dense/config.json", "/in_features", 31, "20 x 31"},
        EmbedderSetting{"bert",
                        "config_sentence_transformers.json",
                        "",
                        {{"prompts", {{"a", "b"}}}, {"default_prompt_name", "c"}},
                        "default_prompt"},
        EmbedderSetting{
            "bert", "sentence_bert_config.json", "", {{"do_lower_case", true}}, "do_lower_case"}));

// Takes from each matrix what the second of two tasks adds, and puts both tasks' factors beside it.
void SplitOffTasks(std::map<std::string, HfWeights>& weights) {
  constexpr int64_t kRank = 2;
  constexpr double kScale = 3.0 / kRank;  // lora_alpha / rank
  const std::map<std::string, HfWeights> whole = std::exchange(weights, {});
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  for (const auto& [name, tensor] : whole) {
    if (tensor.shape.size() != 2 || name.find("token_type") != std::string::npos) {
      weights[name] = tensor;
      continue;
    }
    const int64_t rows = tensor.shape[0];
    const int64_t columns = tensor.shape[1];
    const bool is_table = name.find("word_embeddings") != std::string::npos;
    HfWeights left{{2, rows, kRank}, {}};
    HfWeights right{{2, kRank, columns}, {}};
    for (int64_t i = 0; i < 2 * rows * kRank; ++i) left.values.push_back(uniform(random));
    for (int64_t i = 0; i < 2 * kRank * columns; ++i) right.values.push_back(uniform(random));
    HfWeights original = tensor;
    for (int64_t i = 0; i < rows * columns; ++i) {
      double added = 0;
      for (int64_t k = 0; k < kRank; ++k) {
        added += double{left.values[static_cast<size_t>((rows + i / columns) * kRank + k)]} *
                 double{right.values[static_cast<size_t>((kRank + k) * columns + i % columns)]};
      }
      original.values[static_cast<size_t>(i)] -= static_cast<float>(kScale * added);
    }
    const std::string beginning = name.substr(0, name.rfind('.')) + ".parametrizations.weight.";
    weights[beginning + "original"] = original;
    weights[beginning + "0.lora_A"] = is_table ? left : right;
    weights[beginning + "0.lora_B"] = is_table ? right : left;
  }
}

TEST(SeededEmbedder, AdaptersOfATaskAreMerged) {
  SeededModel seeded(std::string(kSeededEmbedders) + "jina-bert-v3-published");
  seeded.config["lora_adaptations"] = {"retrieval.query", "text-matching"};
  seeded.config["lora_alpha"] = 3;
  seeded.change_weights = SplitOffTasks;
  seeded.files["config_sentence_transformers.json"] = {
      {"prompts", {{"retrieval.query", "Query: "}, {"text-matching", "Text: "}}}};
  EXPECT_THAT(seeded.Message(), HasSubstr("--task retrieval.query, text-matching"));
  seeded.task = "separation";
  EXPECT_THAT(seeded.Message(), HasSubstr("found \"separation\""));
  seeded.task = "text-matching";
  const auto embedder = OpenEmbedder(seeded.Open());
  ASSERT_NE(embedder, nullptr);
  EXPECT_EQ(embedder->default_prompt(), "text-matching");
  const std::vector<float> vector = seeded.Vector();
  const std::vector<float> found = EmbeddedRows(*embedder, {seeded.Source(), {}}, 2);
  ASSERT_EQ(found.size(), vector.size());
  EXPECT_LE(MaxDifference(found, vector), kEmbedderTolerance);
}

TEST(SeededEmbedder, TasksNeedAdapters) {
  SeededModel seeded(std::string(kSeededEmbedders) + "bert");
  seeded.task = "text-matching";
  EXPECT_THAT(seeded.Message(), HasSubstr("expected adapters of tasks"));
}

TEST(SeededEmbedder, InnerPartsOfWritersNeedModules) {
  SeededModel seeded(std::string(kSeededEmbedders) + "qwen3");
  seeded.files.erase(kModulesFile);
  EXPECT_THAT(seeded.Message(), HasSubstr("without modules.json"));
}

}  // namespace
}  // namespace kvant::test
