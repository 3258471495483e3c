// Tests every family of the list: a folder of random weights with all tensors of the family's rows
// is converted. The model computes, in any pieces, what the double-precision reference computes
// from its ModelSpec, and still runs when its matrices are quantized. A new family is tested by
// being listed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <set>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/arch/family.h"
#include "engine/convert/convert.h"
#include "engine/quantize/plan.h"
#include "engine/quantize/quantize.h"
#include "formats/gguf.h"
#include "kvant/embed.h"
#include "tests/engine/arch/seeded_config.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

// Whether a row's models give rows of texts, and no logits of tokens.
bool IsEmbedder(const std::string& path) {
  const auto file = formats::GgufFile::Open(path);
  return file.ok() && arch::ReadSpec(*file).value().embedder.has_value();
}

bool HasEncoder(const arch::HfFamily& family) {
  return std::ranges::any_of(family.tensors, [](const arch::HfTensor& tensor) {
    return tensor.gguf_name.starts_with("enc.blk.");
  });
}

bool HasIndexer(const formats::GgufFile& file) {
  return std::ranges::any_of(file.tensors(), [](const formats::GgufTensor& tensor) {
    return tensor.name.ends_with("indexer.k_norm.weight");
  });
}

bool IsConvolution(const arch::HfTensor& row) {
  return row.columns == arch::Extent::kThreeFrames || row.columns == arch::Extent::kThreeRows;
}

// Whether both stacks have an embedding of their own.
bool HasTwoEmbeddings(const arch::HfFamily& family) {
  return std::ranges::any_of(family.tensors, [](const arch::HfTensor& tensor) {
    return tensor.gguf_name == "enc.token_embd.weight";
  });
}

// Both stacks differ; the first keys are those of T5, the next ones those of all others.
nlohmann::json PairConfig(const arch::HfFamily& family) {
  return {{"architectures", {family.classes.front()}},
          {"d_model", 256},
          {"num_layers", 3},
          {"num_decoder_layers", 2},
          {"num_heads", 4},
          {"d_kv", 32},
          {"d_ff", 512},
          {"encoder_layers", 3},
          {"decoder_layers", 2},
          {"encoder_attention_heads", 4},
          {"decoder_attention_heads", 2},
          {"encoder_ffn_dim", 512},
          {"decoder_ffn_dim", 256},
          {"max_position_embeddings", 256},
          {"max_target_positions", 256},
          {"max_source_positions", 24},
          {"num_mel_bins", 256},
          {"share_encoder_decoder_embeddings", !HasTwoEmbeddings(family)},
          {"vocab_size", 40},
          {std::string(family.activation.key), family.activation.names.front()},
          {"tie_word_embeddings", false},
          {"pad_token_id", 1},
          {"eos_token_id", 2},
          {"decoder_start_token_id", 2}};
}

// Rows of 256 values, so that every block format can hold the matrices; windows that are shorter
// than the text; a layer of each kind of an alternation.
nlohmann::json Config(const arch::HfFamily& family) {
  if (HasEncoder(family)) return PairConfig(family);
  if (family.arch != "llama" && family.arch != "phi3") {
    const auto seeded = SeededConfig(family);
    if (seeded.has_value()) return *seeded;
  }
  nlohmann::json config = {{"architectures", {family.classes.front()}},
                           {"hidden_size", 256},
                           {"intermediate_size", 512},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 64},
                           {"num_hidden_layers", 3},
                           {"vocab_size", 40},
                           {"max_position_embeddings", 256},
                           {"rms_norm_eps", 1e-5},
                           {std::string(family.activation.key), family.activation.names.front()},
                           {"tie_word_embeddings", false},
                           {"sliding_window", 9},
                           {"sliding_window_pattern", 3},
                           {"query_pre_attn_scalar", 50.0},
                           {"bos_token_id", 1},
                           {"eos_token_id", 2}};
  if (family.arch == "granitemoe") {
    config["embedding_multiplier"] = 3.0;
    config["residual_multiplier"] = 0.6;
    config["attention_multiplier"] = 0.2;
    config["logits_scaling"] = 0.5;
  }
  if (!family.experts.count.empty()) {
    config[std::string(family.experts.count)] = 6;
    config[std::string(family.experts.used)] = 2;
    config[std::string(family.experts.ffn)] = 256;
    for (const std::string_view key : {family.experts.shared_ffn, family.experts.shared_count}) {
      if (!key.empty()) config[std::string(key)] = key == family.experts.shared_ffn ? 512 : 2;
    }
  }
  if (family.arch == "gemma2") {
    config["attn_logit_softcapping"] = 4.0;
    config["final_logit_softcapping"] = 6.0;
  }
  return config;
}

// The number of a layer.
std::string WithNumber(std::string_view name, int64_t number) {
  std::string text(name);
  const size_t mark = text.find("{}");
  return mark == std::string::npos ? text : text.replace(mark, 2, std::to_string(number));
}

HfWeights RandomWeights(const arch::HfTensor& row, const arch::HfShape& shape,
                        std::mt19937& random) {
  HfWeights tensor;
  tensor.shape = arch::SourceShapeOf(row, shape);
  const bool is_matrix = tensor.shape.size() > 1;
  const bool transposed = row.order == arch::RowOrder::kTransposed;
  auto columns = static_cast<float>(*(tensor.shape.end() - (transposed ? 2 : 1)));
  if (IsConvolution(row)) columns *= static_cast<float>(tensor.shape[1]);
  const float deviation = is_matrix ? 1.2f / std::sqrt(columns) : 0.3f;
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  const bool is_embedding = row.gguf_name == arch::kEmbeddingName;
  tensor.values = RandomValues(count, is_embedding ? 1.0f : deviation, random);
  if (row.gguf_name.ends_with("_norm.weight") && row.values == arch::Values::kSame) {
    for (float& value : tensor.values) value += 1.0f;
  }
  return tensor;
}

// Leaves one of several shards of a matrix; the last one has what the others leave.
void TakeShard(int64_t shards, int64_t number, HfWeights& weights) {
  const int64_t rows = (weights.shape[0] + shards - 1) / shards;
  weights.shape[0] = std::min(rows, weights.shape[0] - number * rows);
  weights.values.resize(static_cast<size_t>(weights.shape[0] * weights.shape[1]));
}

// Where a family has layers of both kinds, the first one has no experts.
bool HasRow(const arch::HfFamily& family, const arch::HfShape& shape, const arch::HfTensor& row,
            int64_t layer) {
  const bool both = std::ranges::any_of(family.tensors, [](const arch::HfTensor& tensor) {
    return tensor.layers == arch::InLayers::kWithoutExperts;
  });
  bool experts = !both || layer > 0;
  // Where layers are one sublayer each, a feed-forward has experts if the model has some.
  if (!shape.ffn_widths.empty()) {
    experts = shape.experts > 0 && shape.ffn_widths[static_cast<size_t>(layer)] > 0;
  }
  return arch::HasTensorsOf(row.layers, shape, {layer, experts});
}

// All tensors, the optional ones included.
void AddWeights(const arch::HfFamily& family, HfFolder& folder) {
  const formats::JsonObject config =
      formats::JsonObject::Parse(folder.config.dump(), "config.json").value();
  const arch::HfShape all = arch::ReadHfShape(family, config).value();
  std::mt19937 random(11);
  folder.weights.clear();
  for (const arch::HfNumber& number : family.numbers) {
    for (int64_t layer = 0; layer < all.layers; ++layer) {
      folder.weights[WithNumber(number.hf_name, layer)] = {{1}, {number.otherwise.value_or(0.4f)}};
    }
  }
  std::set<std::pair<std::string_view, arch::InLayers>> added;
  for (const arch::HfTensor& row : family.tensors) {
    // A tensor may have another name in other models of the class.
    if (!added.insert({row.gguf_name, row.layers}).second) continue;
    // One layer has the table of n-grams in a folder.
    const bool of_ngrams = row.layers == arch::InLayers::kWithNgrams;
    const bool in_layers = of_ngrams || row.gguf_name.find("{}") != std::string_view::npos;
    const bool of_decoder = row.gguf_name.starts_with(arch::kHfDecoderPrefix);
    const arch::HfShape stack = of_decoder ? arch::ShapeOfDecoder(all) : all;
    for (int64_t layer = 0; layer < (in_layers ? stack.layers : 1); ++layer) {
      if (!HasRow(family, all, row, layer)) continue;
      const arch::HfShape shape = in_layers ? arch::ShapeOfLayer(stack, layer) : all;
      if (arch::ExtentSize(row.rows, shape) == 0 || arch::ExtentSize(row.columns, shape) == 0) {
        continue;
      }
      const int64_t experts = arch::SourceCountOf(row, shape);
      for (int64_t expert = 0; expert < experts; ++expert) {
        const std::string layer_name =
            in_layers ? WithNumber(row.hf_name, layer) : std::string(row.hf_name);
        HfWeights& weights = folder.weights[arch::SourceNameOf(row, layer_name, expert)];
        weights = RandomWeights(row, shape, random);
        if (row.experts == arch::ExpertForm::kShards) TakeShard(experts, expert, weights);
        // Its products of queries and keys have no other scale, without which softmaxes of random
        // numbers amplify roundings.
        const bool by_norm = family.arch == "gemma4" || family.arch == "gemma3n";
        const bool by_matrix = family.arch.starts_with("t5");
        const bool scales = (by_norm && row.gguf_name.ends_with("attn_q_norm.weight")) ||
                            (by_matrix && row.gguf_name.ends_with("attn_q.weight"));
        if (!scales) continue;
        for (float& value : weights.values) value *= 0.125f;
      }
    }
  }
}

std::vector<const arch::HfFamily*> Rows() {
  std::vector<const arch::HfFamily*> rows;
  for (const arch::Family* family : arch::AllFamilies()) {
    for (const arch::HfFamily& row : family->hf) rows.push_back(&row);
  }
  return rows;
}

class Families : public testing::TestWithParam<const arch::HfFamily*> {
 protected:
  // The row's model as a GGUF file of 32-bit floats.
  void SetUp() override {
    HfFolder folder;
    folder.config = Config(*GetParam());
    AddWeights(*GetParam(), folder);
    folder.Write();
    if (GetParam()->is_inner) {
      folder.WriteJson("modules.json", {{{"path", ""}, {"type", "Transformer"}},
                                        {{"path", "pooling"}, {"type", "Pooling"}}});
      std::filesystem::create_directory(folder / "pooling");
      folder.WriteJson("pooling/config.json", {{"pooling_mode", "lasttoken"}});
    }
    path_ = TempPath("family.gguf");
    const auto summary = convert::ConvertFolder(folder.Path(), path_, {.type = "f32"});
    ASSERT_TRUE(summary.ok()) << summary.error().message;
  }

  void TearDown() override { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }

  static std::vector<float> LogitsOf(const std::string& path, size_t piece) {
    const auto model = Model::Open(path);
    EXPECT_TRUE(model.ok()) << model.error().message;
    if (!model.ok()) return {};
    if ((*model)->spec().embedder.has_value()) return RowsAndScores(*model);
    SessionOptions options;
    options.k_type = options.v_type = KvType::kF32;
    if (!(*model)->has_decoder()) return RowsOfSource(*model, options);
    if ((*model)->has_encoder()) return LogitsWithSource(*model, options, piece);
    const auto session = OpenSession(*model, options);
    return AllLogits(*session, Tokens(), piece);
  }

  static std::vector<float> LogitsWithSource(const std::shared_ptr<const Model>& model,
                                             const SessionOptions& options, size_t piece) {
    const auto runner = OpenRunner(model, options);
    const auto source = model->frame_shape().has_value()
                            ? runner->EncodeFrames(Frames(*model->frame_shape()))
                            : runner->Encode(Source());
    EXPECT_TRUE(source.ok()) << source.error().message;
    const auto sequence = runner->NewSequence(*source);
    EXPECT_TRUE(sequence.ok()) << sequence.error().message;
    return LogitsOfAll(*runner, *sequence, Tokens(), piece);
  }

  // The rows of a text, and behind them its logits where there is a classifier.
  static std::vector<float> RowsAndScores(const std::shared_ptr<const Model>& model) {
    const EmbedTokens text = {Source(), {}};
    auto by_row = Embedder::Create(model, {.threads = 2, .pooling = Pooling::kNone});
    EXPECT_TRUE(by_row.ok()) << by_row.error().message;
    if (!by_row.ok()) return {};
    const auto rows = (*by_row)->Embed({&text, 1});
    EXPECT_TRUE(rows.ok()) << rows.error().message;
    if (!rows.ok()) return {};
    std::vector<float> found = rows->values;
    if (model->spec().embedding.pooling != Pooling::kRank) return found;
    auto ranker = Embedder::Create(model, {.threads = 2});
    EXPECT_TRUE(ranker.ok()) << ranker.error().message;
    if (!ranker.ok()) return {};
    const auto ranking = (*ranker)->Rank({&text, 1});
    EXPECT_TRUE(ranking.ok()) << ranking.error().message;
    if (ranking.ok()) {
      found.insert(found.end(), ranking->logits.begin(), ranking->logits.end());
    }
    return found;
  }

  // The rows that an encoder alone gives.
  static std::vector<float> RowsOfSource(const std::shared_ptr<const Model>& model,
                                         const SessionOptions& options) {
    const auto runner = OpenRunner(model, options);
    std::vector<float> rows;
    const auto source =
        runner->Encode(Source(), {.rows = [&](std::span<const float> found) -> Status {
                         rows.assign(found.begin(), found.end());
                         return {};
                       }});
    EXPECT_TRUE(source.ok()) << source.error().message;
    return rows;
  }

  // The reference's result: logits, or rows of an encoder alone.
  static Vector Expected(const formats::GgufFile& file, ReferenceForward& reference) {
    const arch::ModelSpec spec = arch::ReadSpec(file).value();
    std::vector<Vector> encoded;
    if (spec.embedder.has_value()) {
      encoded = reference.Rows(Source());
      if (spec.embedding.pooling == Pooling::kRank) encoded.push_back(reference.Scores(encoded));
    } else if (spec.encoder.has_value() && spec.encoder->frames.has_value()) {
      encoded = reference.EncodeFrames(
          Frames({spec.encoder->frames->bins, 2 * spec.encoder->source_max}));
    } else if (spec.encoder.has_value()) {
      encoded = reference.Encode(Source());
    }
    if (!spec.stacks.empty()) return reference.Logits(Tokens());
    Vector rows;
    for (const Vector& row : encoded) rows.insert(rows.end(), row.begin(), row.end());
    return rows;
  }

  // For a quantized file. The reference takes its weights as they are, so only the rounding of
  // activations to 8 bits differs.
  static void ExpectCloseToReference(const std::string& path, const std::vector<float>& found) {
    const auto file = formats::GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ReferenceForward reference(*file);
    const Vector expected = Expected(*file, reference);
    const std::vector<float> floats(expected.begin(), expected.end());
    ASSERT_EQ(floats.size(), found.size());
    const size_t rows = arch::ReadSpec(*file).value().stacks.empty() ? Source().size() : 50;
    EXPECT_LT(MeanDivergence(floats, found, rows), 0.005);
  }

  // The length of the difference by that of the values.
  static double RelativeDifference(const std::vector<float>& values,
                                   const std::vector<float>& others) {
    double difference = 0;
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = static_cast<double>(values[i]);
      difference += (value - others[i]) * (value - others[i]);
      squares += value * value;
    }
    return std::sqrt(difference / squares);
  }

  static std::vector<float> Frames(const FrameShape& shape) {
    std::mt19937 random(8);
    return RandomValues(shape.bins * shape.frames, 1.0f, random);
  }

  static std::vector<TokenId> Source() { return RandomTokens(33, 6, 40); }

  static std::vector<TokenId> Tokens() { return RandomTokens(50, 5, 40); }

 private:
  std::string path_;
};

INSTANTIATE_TEST_SUITE_P(Listed, Families, testing::ValuesIn(Rows()), [](const auto& row) {
  const std::string name(row.param->classes.front());
  std::string arch(row.param->arch);
  std::ranges::replace(arch, '-', '_');
  return row.param->is_of == nullptr ? name : name + "_of_" + arch;
});

// No tensor that a row names is one that nothing reads, which would be a misspelt name of an
// optional one.
TEST_P(Families, ComputeWhatTheReferenceComputesFromEveryTensor) {
  const auto file = formats::GgufFile::Open(path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  ReferenceForward reference(*file);
  const Vector expected = Expected(*file, reference);
  for (const formats::GgufTensor& tensor : file->tensors()) {
    if (tensor.name.starts_with("rope_")) continue;  // read with the metadata
    EXPECT_TRUE(reference.weights().IsRead(std::string(tensor.name))) << tensor.name;
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{50}}) {
    const std::vector<float> logits = LogitsOf(path(), piece);
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0;
    double spread = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(logits[i]) - expected[i]));
      spread = std::max(spread, std::abs(expected[i]));
    }
    EXPECT_LT(largest, 1e-4) << piece;  // as in session_test.cpp
    EXPECT_GT(spread, 1.0) << "the model is degenerate and the test says nothing";
  }
}

TEST_P(Families, RunWithQuantizedMatrices) {
  const std::vector<float> exact = LogitsOf(path(), 50);
  for (const char* recipe : {"Q8_0", "Q4_K_M"}) {
    const std::string output = TempPath(recipe);
    const auto file = formats::GgufFile::Open(path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    quantize::PlanOptions options;
    options.recipe = quantize::FindRecipe(recipe);
    const auto plan = quantize::PlanQuantization(*file, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto written = quantize::WriteQuantized(*file, *plan, output, {});
    ASSERT_TRUE(written.ok()) << written.error().message;
    const std::vector<float> whole = LogitsOf(output, 50);
    const std::vector<float> pieces = LogitsOf(output, 7);
    if (HasEncoder(*GetParam())) ExpectCloseToReference(output, whole);
    const bool embeds = IsEmbedder(output);
    std::filesystem::remove(output);
    ASSERT_EQ(whole.size(), exact.size());
    // Random weights suffer more than trained ones, most of all where states and routers amplify
    // roundings; a wrong order of rows would give some units. The
    // weights of a sparse mixer jump where another expert comes close enough, squares of ReLUs
    // double relative roundings, and another group of experts may come close enough.
    const std::string_view arch = GetParam()->arch;
    const bool amplifies = arch == "phimoe" || arch == "nemotron_h_moe" || arch == "qwen35moe" ||
                           arch == "exaone-moe" || arch == "kimi-linear" || arch == "bailingmoe3";
    // An indexer that chooses 8 of 50 positions chooses others where two scores are close.
    const bool chooses = HasIndexer(*file);
    const double limit = chooses ? 0.1 : amplifies ? 0.05 : 0.02;
    if (embeds) {
      // Rows are no logits. Signs of a direction that is another one would differ by more than 1.
      EXPECT_LT(RelativeDifference(exact, whole), recipe == std::string("Q8_0") ? 0.1 : 0.7);
      EXPECT_EQ(whole, pieces) << recipe;
      continue;
    }
    const bool alone = HasEncoder(*GetParam()) && exact.size() != 50 * 40;
    EXPECT_LT(MeanDivergence(exact, whole, alone ? Source().size() : 50),
              recipe == std::string("Q8_0") ? limit : 0.5);
    EXPECT_LT(MaxDifference(whole, pieces), 1e-4) << recipe;
  }
}

// The lists of the documentation follow the list of families.
TEST(FamilyList, TheDocumentsNameAllModels) {
  const auto text = [](const char* name) {
    std::ifstream stream(SourcePath(name));
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const std::string readme = text("README.md");
  const std::string page = text("docs/models.md");
  for (const KnownArchitecture& known : KnownArchitectures()) {
    EXPECT_NE(readme.find(known.models), std::string::npos) << known.models;
    EXPECT_NE(page.find(fmt::format("| `{}` | {} |", known.name, known.models)), std::string::npos)
        << known.name;
  }
}

}  // namespace
}  // namespace kvant::test
