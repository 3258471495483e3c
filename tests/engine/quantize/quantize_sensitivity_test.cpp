// Sensitivities beside brute force: every matrix rounded in a whole model, and the divergence of
// that model's rows from those of the unchanged one.
#include "engine/quantize/sensitivity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "engine/quantize/calibration_text.h"
#include "engine/quantize/plan.h"
#include "engine/quantize/typical_sensitivity.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "quant/format.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using formats::GgufTensor;

std::string TinyModelPath(const char* name) {
  return std::string(KVANT_SOURCE_DIR) + "/models/" + name;
}

std::vector<MeasuredMatrix> MatricesOf(const GgufFile& file) {
  std::vector<MeasuredMatrix> matrices;
  for (const GgufTensor& tensor : file.tensors()) {
    if (IsQuantizable(tensor)) matrices.emplace_back().tensor = &tensor;
  }
  return matrices;
}

// The scored rows of a model, windows one after another.
std::vector<std::vector<float>> ScoredRows(const std::shared_ptr<const Model>& model,
                                           const evaluate::Windows& windows) {
  SessionOptions options;
  options.kv_cache = false;
  options.context = windows.size();
  options.threads = 2;
  std::vector<std::vector<float>> rows(static_cast<size_t>(windows.count() * windows.rows()));
  for (int64_t window = 0; window < windows.count(); ++window) {
    const auto session = Session::Create(model, options);
    EXPECT_TRUE(session.ok());
    std::vector<TokenId> tokens = windows.Tokens(window);
    tokens.pop_back();
    const auto keep = [&](int64_t i, std::span<const float> row) {
      rows[static_cast<size_t>(window * windows.rows() + i - windows.first_row())].assign(
          row.begin(), row.end());
    };
    EXPECT_TRUE((*session)->AppendScoring(tokens, windows.first_row(), keep).ok());
  }
  return rows;
}

// The documented rounding: 32 values to multiples of a sixth of the largest.
double RoundToSixths(const GgufTensor& tensor, std::vector<float>& values) {
  quant::DecodeRows(*tensor.format, tensor.data, tensor.rows(), tensor.dims[0], values.data());
  double noise = 0;
  double signal = 0;
  const auto cols = static_cast<size_t>(tensor.dims[0]);
  for (size_t begin = 0; begin < values.size();) {
    const size_t end = std::min(begin + 32, (begin / cols + 1) * cols);
    float largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
    for (size_t i = begin; i < end && largest > 0; ++i) {
      const float before = values[i];
      values[i] = largest / 6 * std::round(before / (largest / 6));
      noise += std::pow(double{before} - double{values[i]}, 2);
      signal += std::pow(double{before}, 2);
    }
    begin = end;
  }
  return noise / signal;
}

// To the nearest, halves to even.
void WriteAsBf16(const std::vector<float>& values, std::byte* bytes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    const auto upper = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(bytes + 2 * i, &upper, 2);
  }
}

class Sensitivities : public testing::TestWithParam<const char*> {};

TEST_P(Sensitivities, AreThoseOfWholeChangedModels) {
  const auto file = GgufFile::Open(TinyModelPath(GetParam()));
  ASSERT_TRUE(file.ok());
  const std::vector<MeasuredMatrix> matrices = MatricesOf(*file);
  auto test = SensitivityTest::Create(
      *file, matrices,
      {.text = std::string(kCalibrationText), .window = 80, .tokens_max = 160, .threads = 2});
  ASSERT_TRUE(test.ok()) << test.error().message;
  const auto measured = test->Measure(matrices);
  ASSERT_TRUE(measured.ok()) << measured.error().message;

  const auto model = Model::Create(file->Share());
  ASSERT_TRUE(model.ok());
  auto tokens = (*model)->tokenizer().Encode(kCalibrationText, {});
  ASSERT_TRUE(tokens.ok());
  tokens->resize(160);
  const auto windows =
      evaluate::Windows::Whole(std::move(*tokens), (*model)->tokenizer().special(), 80);
  ASSERT_EQ(windows.count(), 2);
  const auto base = ScoredRows(*model, windows);
  for (size_t m = 0; m < matrices.size(); m += 5) {
    const GgufTensor& tensor = *matrices[m].tensor;
    std::vector<float> values(static_cast<size_t>(tensor.n_values()));
    const double error = RoundToSixths(tensor, values);
    EXPECT_GT(error, 0.001) << tensor.name;
    EXPECT_LT(error, 0.05) << tensor.name;
    ASSERT_STREQ(tensor.format->name, "BF16");
    auto bytes = AlignedBuffer::Allocate(tensor.size_bytes, "a test");
    ASSERT_TRUE(bytes.ok());
    WriteAsBf16(values, bytes->data());
    GgufFile changed = file->Share();
    changed.ReplaceTensor(tensor.name, *tensor.format, std::move(*bytes));
    const auto other = Model::Create(std::move(changed));
    ASSERT_TRUE(other.ok());
    const auto rows = ScoredRows(*other, windows);
    double sum = 0;
    for (size_t row = 0; row < rows.size(); ++row) {
      sum += evaluate::KlDivergence(evaluate::Normalize(base[row]), evaluate::Normalize(rows[row]));
    }
    const double expected = sum / static_cast<double>(rows.size()) / error;
    // The mean over 128 tokens of 39 rows in two windows, drawn, is within some percent.
    EXPECT_NEAR((*measured)[m], expected, 0.2 * expected) << tensor.name;
    EXPECT_GT(expected, 0) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Sensitivities,
                         testing::Values("shakespeare/shakespeare-bf16.gguf",
                                         "lfm2-tiny/lfm2-tiny-bf16.gguf",
                                         "qwen35-tiny/qwen35-tiny-bf16.gguf"),
                         [](const auto& tested) { return std::to_string(tested.index); });

TEST(Sensitivity, ReportsWhatIsDoneAndLimitsItself) {
  const auto file = GgufFile::Open(TinyModelPath("shakespeare/shakespeare-bf16.gguf"));
  ASSERT_TRUE(file.ok());
  const std::vector<MeasuredMatrix> matrices = MatricesOf(*file);
  std::vector<double> seen;
  auto test = SensitivityTest::Create(*file, matrices,
                                      {.text = std::string(kCalibrationText),
                                       .tokens_max = 128,
                                       .on_progress = [&](std::string_view, double done) -> Status {
                                         seen.push_back(done);
                                         return {};
                                       }});
  ASSERT_TRUE(test.ok());
  EXPECT_EQ(test->tokens(), 128);
  ASSERT_TRUE(test->Measure(matrices).ok());
  ASSERT_EQ(seen.size(), matrices.size() + 1);
  EXPECT_EQ(seen.front(), 0);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GT(seen.back(), 0.9);
  EXPECT_LT(seen.back(), 1);
  const auto whole =
      SensitivityTest::Create(*file, matrices, {.text = std::string(kCalibrationText)});
  ASSERT_TRUE(whole.ok());
  EXPECT_GT(whole->tokens(), 1000);
  EXPECT_LE(whole->macs(), SensitivityOptions::kMacs);
  const double of_token = test->macs() / 128;
  EXPECT_NEAR(whole->macs() / static_cast<double>(whole->tokens()), of_token, 0.2 * of_token);
}

// ---- Typical sensitivities ----------------------------------------------------------------------

// The fields of the lines of bench/results/sensitivities.csv, without comments and the heading.
std::vector<std::vector<std::string>> MeasuredLines() {
  std::ifstream file(std::string(KVANT_SOURCE_DIR) + "/bench/results/sensitivities.csv");
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#') || line.starts_with("model,")) continue;
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
    lines.push_back(fields);
  }
  return lines;
}

// The table is what was measured: geometric means over the layers of a sixth, then over models.
TEST(TypicalSensitivity, IsTheMeanOfWhatWasMeasured) {
  std::map<std::pair<std::string, int64_t>, std::map<std::string, std::vector<double>>> logs;
  std::set<std::string> models;
  for (const auto& fields : MeasuredLines()) {
    ASSERT_EQ(fields.size(), 5u);
    const int64_t layers = std::stoll(fields[1]);
    const int64_t layer = std::stoll(fields[2]);
    const double value = std::stod(fields[4]);
    models.insert(fields[0]);
    constexpr int64_t kLayersOfLarge = 18;
    if (layers < kLayersOfLarge || layer < 0 || value <= 0) continue;
    logs[{fields[3], 6 * layer / layers}][fields[0]].push_back(
        std::log(value * static_cast<double>(layers)));
  }
  EXPECT_GE(models.size(), 5u);
  EXPECT_GE(logs.size(), 7u * 6u);
  for (const auto& [place, of_models] : logs) {
    double sum = 0;
    for (const auto& [model, values] : of_models) {
      sum +=
          std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    }
    const double measured = std::exp(sum / static_cast<double>(of_models.size()));
    const std::string name = fmt::format("blk.{}.{}.weight", 4 * place.second, place.first);
    const double typical = 24 * TypicalSensitivity(name, 24, OutputMatrix::kEmbedding);
    EXPECT_NEAR(typical, measured, 0.06 + 0.02 * measured) << name;  // one digit behind the point
  }
}

TEST(TypicalSensitivity, KnowsTheOutputMatrix) {
  const double tied = TypicalSensitivity("token_embd.weight", 24, OutputMatrix::kEmbedding);
  EXPECT_EQ(TypicalSensitivity("output.weight", 24, OutputMatrix::kOwn), tied);
  EXPECT_LT(TypicalSensitivity("token_embd.weight", 24, OutputMatrix::kOwn), tied / 5);
  for (const char* role : {"attn_q", "attn_qkv", "ffn_down_exps", "ssm_out", "unheard_of"}) {
    const std::string name = fmt::format("blk.3.{}.weight", role);
    EXPECT_LT(TypicalSensitivity(name, 24, OutputMatrix::kOwn), tied / 10) << role;
    EXPECT_GT(TypicalSensitivity(name, 24, OutputMatrix::kOwn), 0) << role;
  }
  // Layers that the metadata do not count.
  EXPECT_GT(TypicalSensitivity("blk.99.attn_q.weight", 2, OutputMatrix::kOwn), 0);
  EXPECT_GT(TypicalSensitivity("blk.0.attn_q.weight", 0, OutputMatrix::kOwn), 0);
}

}  // namespace
}  // namespace kvant::quantize
