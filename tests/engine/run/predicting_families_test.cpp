// The last layer of every seeded model, as one that predicts further tokens: it guesses without a
// trace in the logits, or the file is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "kvant/model.h"
#include "kvant/runner.h"
#include "quant/format.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

// Writes `path` again, with its last layer as a predictor.
std::string WithLastLayerPredicting(const std::string& path) {
  const auto file = formats::GgufFile::Open(path);
  EXPECT_TRUE(file.ok());
  const std::string arch(file->GetString("general.architecture")->value());
  const auto number = [&](const char* key) {
    return static_cast<int64_t>(file->GetU32(arch + key)->value_or(0));
  };
  const int64_t dim = number(".embedding_length");
  const std::string layer = "blk." + std::to_string(number(".block_count") - 1) + ".nextn.";
  formats::GgufWriter writer;
  for (const auto& [key, value] : file->metadata()) writer.AddValue(std::string(key), value);
  writer.AddU32(arch + ".nextn_predict_layers", 1);
  const std::vector<float> numbers(static_cast<size_t>(2 * dim * dim), 0.02f);
  std::vector<formats::GgufTensor> tensors(file->tensors().begin(), file->tensors().end());
  const std::string names[] = {layer + "eh_proj.weight", layer + "enorm.weight",
                               layer + "hnorm.weight"};
  for (const std::string& name : names) {
    formats::GgufTensor tensor;
    tensor.name = name;
    tensor.format = quant::FindFormat("F32");
    tensor.type = tensor.format->type;
    tensor.n_dims = name == names[0] ? 2 : 1;
    tensor.dims[0] = name == names[0] ? 2 * dim : dim;
    tensor.dims[1] = name == names[0] ? dim : 1;
    tensor.size_bytes = static_cast<uint64_t>(tensor.n_values()) * sizeof(float);
    tensor.data = reinterpret_cast<const std::byte*>(numbers.data());
    tensors.push_back(tensor);
  }
  for (const formats::GgufTensor& tensor : tensors) EXPECT_TRUE(writer.AddTensor(tensor).ok());
  const std::string out = TempPath("predicting.gguf");
  EXPECT_TRUE(writer.Begin(out).ok());
  for (const formats::GgufTensor& tensor : tensors) {
    EXPECT_TRUE(writer.WriteTensor({tensor.data, tensor.size_bytes}).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return out;
}

class PredictingFamilies : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Seeded, PredictingFamilies, testing::ValuesIn(SeededModelNames()),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(PredictingFamilies, GuessWithoutATraceOrAreRefused) {
  SeededModel seeded(GetParam());
  const auto converted = seeded.Convert();
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  const std::string path = WithLastLayerPredicting(*converted);
  const auto model = Model::Open(path, {.predictors = true});
  if (!model.ok()) {
    const bool is_refused =
        model.error().code == ErrorCode::kNotSupported || model.error().code == ErrorCode::kCorrupt;
    EXPECT_TRUE(is_refused) << model.error().message;
    EXPECT_THAT(model.error().message, testing::HasSubstr(path));
    return;
  }
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.context = 64;
  options.threads = 2;
  options.kv_check = true;
  options.state_log = 8;
  const auto runner = OpenRunner(*model, options);
  const auto plain = OpenRunner(*model, options);
  const SequenceId one = runner->NewSequence().value();
  const SequenceId other = plain->NewSequence().value();
  const std::vector<TokenId> tokens = RandomTokens(40, 5, (*model)->vocab_size());
  for (size_t i = 0; i < tokens.size(); i += 5) {
    ExpectOk(runner->Append(one, std::span(tokens).subspan(i, 5)));
    ExpectOk(plain->Append(other, std::span(tokens).subspan(i, 5)));
    ASSERT_EQ(MaxDifference(runner->logits(one), plain->logits(other)), 0.0) << i;
    const auto guess = runner->Predict(one, tokens[0], 3);
    ASSERT_TRUE(guess.ok()) << guess.error().message;
    for (const TokenId id : *guess) EXPECT_LT(id, (*model)->vocab_size());
  }
  ExpectOk(runner->Check());
}

TEST(PredictingFamiliesRefuse, LayersBesideAnIndexer) {
  for (const char* name : {"deepseek32", "glm-dsa", "minimax-m3"}) {
    SeededModel seeded(name);
    const auto path = seeded.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto model = Model::Open(WithLastLayerPredicting(*path), {.predictors = true});
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_EQ(model.error().code, ErrorCode::kNotSupported);
    EXPECT_THAT(model.error().message, testing::HasSubstr("are not supported beside an indexer"));
  }
}

TEST(PredictingFamiliesRefuse, LayersThatKeepMoreThanKeysAndValues) {
  for (const char* name : {"gemma4-shared", "falcon-h1"}) {
    SeededModel seeded(name);
    const auto path = seeded.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto model = Model::Open(WithLastLayerPredicting(*path), {.predictors = true});
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_EQ(model.error().code, ErrorCode::kNotSupported) << model.error().message;
  }
}

}  // namespace
}  // namespace kvant::test
