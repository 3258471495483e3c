// Types chosen by the size of the file: that it is kept, used up and reproducible, that options of
// single tensors hold, and that a trained model loses less than with a mix of the same size.
#include "engine/quantize/size_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "engine/evaluate/distribution.h"
#include "engine/quantize/type_speed.h"
#include "formats/gguf_writer.h"
#include "kvant/model.h"
#include "kvant/session.h"
#include "quant/format.h"
#include "tests/temporary_folder.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using test::TemporaryFolder;
using testing::HasSubstr;

struct SpreadMatrix {
  const char* name;
  std::vector<int64_t> dims;
  float outliers;  // how far the largest values stand out
};

const std::vector<SpreadMatrix> kSpreadMatrices = {
    {"token_embd.weight", {256, 70}, 1},      {"output.weight", {512, 70}, 4},
    {"blk.0.attn_norm.weight", {256}, 1},     {"blk.0.attn_v.weight", {256, 33}, 1},
    {"blk.0.ffn_down.weight", {288, 300}, 2}, {"blk.0.ffn_up_exps.weight", {256, 5, 3}, 1},
    {"blk.1.attn_q.weight", {256, 100}, 8},   {"blk.1.attn_output.weight", {768, 40}, 3},
};

void WriteSpreadModel(const std::string& path) {
  const auto* format = quant::FindFormat("F32");
  formats::GgufWriter writer(64);
  writer.AddString("general.architecture", "llama");
  writer.AddU32("llama.block_count", 2);
  std::vector<std::vector<float>> values;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const SpreadMatrix& matrix : kSpreadMatrices) {
    ASSERT_TRUE(writer.AddTensor(matrix.name, *format, matrix.dims).ok());
    size_t count = 1;
    for (const int64_t size : matrix.dims) count *= static_cast<size_t>(size);
    auto& tensor = values.emplace_back(count);
    for (float& value : tensor) value = normal(random) * (random() % 50 == 0 ? matrix.outliers : 1);
  }
  ASSERT_TRUE(writer.Begin(path).ok());
  for (const auto& tensor : values) {
    ASSERT_TRUE(writer.WriteTensor(std::as_bytes(std::span(tensor))).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

// Types that need no importances.
SizeRequest Request(std::optional<uint64_t> bytes, std::optional<double> bits = {}) {
  SizeRequest request;
  request.file_bytes = bytes;
  request.bits = bits;
  for (const auto& format : quant::AllFormats()) {
    if (!format.needs_importance) request.measure.formats.push_back(&format);
  }
  return request;
}

double CostOf(const SizePlan& plan) {
  double cost = 0;
  for (const SizedMatrix& matrix : plan.matrices) cost += matrix.cost();
  return cost;
}

class QuantizeSize : public testing::Test {
 protected:
  void SetUp() override {
    WriteSpreadModel(folder_ / "in.gguf");
    auto file = GgufFile::Open(folder_ / "in.gguf");
    ASSERT_TRUE(file.ok());
    file_ = std::make_unique<GgufFile>(std::move(*file));
  }
  // The model with all matrices in Q4_0.
  Result<GgufFile> OpenAsQ4() {
    PlanOptions options;
    options.recipe = FindRecipe("Q4_0");
    options.pure = true;
    const auto quantized = PlanQuantization(*file_, options);
    const auto written = WriteQuantized(*file_, *quantized, folder_ / "q4.gguf", {});
    if (!written.ok()) return written.error();
    return GgufFile::Open(folder_ / "q4.gguf");
  }
  TemporaryFolder folder_;
  std::unique_ptr<GgufFile> file_;
};

TEST_F(QuantizeSize, FillsTheFileAndNeverGoesBeyond) {
  double before = 1e300;
  for (const uint64_t size : {70'000u, 80'000u, 100'000u, 150'000u, 250'000u, 580'000u}) {
    const auto plan = PlanForSize(*file_, {}, Request(size));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    PlanOptions options;
    options.choice = &plan->choice;
    const auto quantized = PlanQuantization(*file_, options);
    ASSERT_TRUE(quantized.ok());
    ASSERT_TRUE(WriteQuantized(*file_, *quantized, folder_ / "out.gguf", {}).ok());
    const uint64_t written = std::filesystem::file_size(folder_ / "out.gguf");
    EXPECT_EQ(written, plan->file_bytes);
    EXPECT_LE(written, size);
    // The smallest step of a small matrix is less than this.
    EXPECT_GE(written, size - size / 50) << size;
    EXPECT_LT(CostOf(*plan), before);
    before = CostOf(*plan);
  }
}

TEST_F(QuantizeSize, KeepsToBitsPerWeight) {
  for (const double bits : {2.6, 3.2, 4.5, 7.0}) {
    const auto plan = PlanForSize(*file_, {}, Request({}, bits));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    PlanOptions options;
    options.choice = &plan->choice;
    const auto quantized = PlanQuantization(*file_, options);
    ASSERT_TRUE(quantized.ok());
    EXPECT_LE(quantized->bits_per_weight(), bits);
    EXPECT_GE(quantized->bits_per_weight(), 0.97 * bits);
  }
}

TEST_F(QuantizeSize, SaysWhatCanBeReached) {
  const auto small = PlanForSize(*file_, {}, Request(5'000));
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(small.error().message, HasSubstr("5000 bytes cannot be reached"));
  const uint64_t least =
      std::stoull(small.error().message.substr(small.error().message.rfind(' ') + 1));
  const auto smallest = PlanForSize(*file_, {}, Request(least));
  ASSERT_TRUE(smallest.ok());
  EXPECT_EQ(smallest->file_bytes, least);
  EXPECT_FALSE(PlanForSize(*file_, {}, Request(least - 1)).ok());
  EXPECT_THAT(PlanForSize(*file_, {}, Request({}, 0.5)).error().message,
              HasSubstr("0.500 bits per weight cannot be reached"));
}

// A size that would be refused in the end is refused before errors are measured.
TEST_F(QuantizeSize, ChecksTheSizeBeforeItMeasures) {
  for (SizeRequest request : {Request(5'000), Request({}, 0.5)}) {
    request.measure.on_progress = [](std::string_view, size_t, size_t) -> Status {
      return MakeError(ErrorCode::kCancelled, "it measures");
    };
    EXPECT_THAT(PlanForSize(*file_, {}, request).error().message, HasSubstr("cannot be reached"));
    request.file_bytes.reset();
    request.bits = 8;
    EXPECT_EQ(PlanForSize(*file_, {}, request).error().message, "it measures");
  }
}

// Importances that no program should have written, and values that no half can hold.
TEST_F(QuantizeSize, MeasuresFiniteErrorsOfAnything) {
  formats::Imatrix imatrix;
  std::vector<double> sums(512, 1.0);
  sums[1] = std::numeric_limits<double>::infinity();
  sums[2] = std::numeric_limits<double>::quiet_NaN();
  sums[3] = -1e30;
  imatrix.entries["output.weight"] = {sums, {1}};
  PlanOptions options;
  options.importance = &imatrix;
  const std::vector<float> huge(256, 3.4028e38f);
  auto bytes = AlignedBuffer::Allocate(33 * 256 * sizeof(float), "a test");
  ASSERT_TRUE(bytes.ok());
  std::memcpy(bytes->data(), file_->FindTensor("blk.0.attn_v.weight")->data, bytes->size());
  std::memcpy(bytes->data(), huge.data(), 256 * sizeof(float));
  file_->ReplaceTensor("blk.0.attn_v.weight", *quant::FindFormat("F32"), std::move(*bytes));
  SizeRequest request = Request(100'000);
  request.measure.sample_values = 1 << 20;
  const auto plan = PlanForSize(*file_, options, request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (const SizedMatrix& matrix : plan->matrices) {
    for (const auto& row : matrix.measured.rows) {
      EXPECT_TRUE(std::isfinite(row.error) && row.error >= 0) << row.format->name;
    }
  }
}

TEST_F(QuantizeSize, IsEndedWhileItChooses) {
  SizeRequest request = Request(100'000);
  request.on_choosing = [](double done) -> Status {
    if (done < 0.3) return {};
    return MakeError(ErrorCode::kCancelled, "enough");
  };
  EXPECT_EQ(PlanForSize(*file_, {}, request).error().message, "enough");
}

TEST_F(QuantizeSize, SaysWhatIsWrongWithQuantizedModels) {
  const auto q4 = OpenAsQ4();
  ASSERT_TRUE(q4.ok());
  const auto plan = PlanForSize(*q4, {}, Request(100'000));
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("is quantized already (Q4_0), and making another "
                                              "type of it would lose quality"));
}

// Types that need importances are no types for a matrix that has none.
TEST_F(QuantizeSize, FallsBackWhereNoneOfTheTypesCanBe) {
  formats::Imatrix imatrix;
  for (const SpreadMatrix& matrix : kSpreadMatrices) {
    if (matrix.dims.size() < 2 || std::string_view(matrix.name) == "token_embd.weight") continue;
    const auto values =
        static_cast<size_t>(matrix.dims[0] * (matrix.dims.size() > 2 ? matrix.dims[2] : 1));
    imatrix.entries[matrix.name] = {std::vector<double>(values, 1.0), {1}};
  }
  PlanOptions options;
  options.importance = &imatrix;
  SizeRequest request = Request(100'000);
  request.measure.formats = {quant::FindFormat("IQ2_XXS"), quant::FindFormat("IQ2_XS")};
  const auto refused = PlanForSize(*file_, options, request);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("which none of the types can hold"));
  request.measure.fallbacks = {quant::FindFormat("Q2_K"), quant::FindFormat("Q4_0")};
  const auto plan = PlanForSize(*file_, options, request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (const auto& [tensor, format] : plan->choice) {
    const bool falls_back = tensor == "token_embd.weight" || tensor == "blk.0.ffn_down.weight";
    EXPECT_EQ(format->needs_importance, !falls_back) << tensor;
  }
  ASSERT_EQ(plan->notes.size(), 1u);
  EXPECT_EQ(
      plan->notes[0],
      "none of the types can hold 2 matrices, the first of them \"token_embd.weight\" (rows of "
      "256 values, no importances): they get others");
}

TEST_F(QuantizeSize, LeavesTensorsWithAnOptionAlone) {
  PlanOptions options;
  options.tensor_rules = {{"attn_v", quant::FindFormat("Q8_0")}};
  options.leave_output = true;
  const auto plan = PlanForSize(*file_, options, Request(260'000));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->choice.count("blk.0.attn_v.weight"), 0u);
  EXPECT_EQ(plan->choice.count("output.weight"), 0u);
  EXPECT_EQ(plan->choice.count("blk.0.ffn_down.weight"), 1u);
  options.choice = &plan->choice;
  const auto quantized = PlanQuantization(*file_, options);
  ASSERT_TRUE(quantized.ok());
  for (const TensorPlan& planned : quantized->tensors) {
    if (planned.source->name == "blk.0.attn_v.weight") {
      EXPECT_STREQ(planned.format->name, "Q8_0");
    }
    if (planned.source->name == "output.weight") {
      EXPECT_STREQ(planned.format->name, "F32");
    }
  }
  EXPECT_LE(*OutputBytes(*file_, *quantized, {}), 260'000u);
}

// A matrix that keeps its type is copied, so nothing is lost.
TEST_F(QuantizeSize, LosesNothingWhereATypeStays) {
  const auto q4 = OpenAsQ4();
  ASSERT_TRUE(q4.ok());
  PlanOptions options;
  options.re_quantizing = ReQuantizing::kAllowed;
  const auto plan = PlanForSize(*q4, options, Request(q4->file_bytes() + 4096));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(CostOf(*plan), 0);
  for (const auto& [tensor, format] : plan->choice) {
    EXPECT_EQ(format, q4->FindTensor(tensor)->format) << tensor;
  }
}

TEST_F(QuantizeSize, ChoosesTheSameWithAnyThreadsAndInstructionSet) {
  const auto expected = PlanForSize(*file_, {}, Request(100'000));
  ASSERT_TRUE(expected.ok());
  const char* before = std::getenv("KVANT_ISA");
  const std::string saved = before != nullptr ? before : "";
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.supported) continue;
    setenv("KVANT_ISA", isa.name, 1);
    SizeRequest request = Request(100'000);
    request.measure.threads = 3;
    const auto plan = PlanForSize(*file_, {}, request);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->choice, expected->choice) << isa.name;
    EXPECT_EQ(CostOf(*plan), CostOf(*expected)) << isa.name;
  }
  saved.empty() ? unsetenv("KVANT_ISA") : setenv("KVANT_ISA", saved.c_str(), 1);
}

// All rows of a matrix that is small enough: the error is that of the written file.
TEST_F(QuantizeSize, MeasuresWhatIsWritten) {
  SizeRequest request = Request(120'000);
  request.measure.sample_values = 1 << 20;
  const auto plan = PlanForSize(*file_, {}, request);
  ASSERT_TRUE(plan.ok());
  PlanOptions options;
  options.choice = &plan->choice;
  const auto quantized = PlanQuantization(*file_, options);
  ASSERT_TRUE(WriteQuantized(*file_, *quantized, folder_ / "out.gguf", {}).ok());
  const auto out = GgufFile::Open(folder_ / "out.gguf");
  ASSERT_TRUE(out.ok());
  for (const SizedMatrix& matrix : plan->matrices) {
    const auto& before = *matrix.measured.tensor;
    const auto& after = *out->FindTensor(before.name);
    ASSERT_EQ(after.format, matrix.row().format);
    EXPECT_EQ(after.size_bytes, matrix.row().tensor_bytes);
    std::vector<float> decoded(static_cast<size_t>(before.n_values()));
    quant::DecodeRows(*after.format, after.data, after.rows(), after.dims[0], decoded.data());
    const auto* values = reinterpret_cast<const float*>(before.data);
    double noise = 0;
    double signal = 0;
    for (size_t i = 0; i < decoded.size(); ++i) {
      noise += std::pow(double{values[i]} - double{decoded[i]}, 2);
      signal += std::pow(double{values[i]}, 2);
    }
    EXPECT_NEAR(matrix.row().error, noise / signal, 1e-9 * (noise / signal)) << before.name;
  }
}

TEST(TypeSpeed, KeepsTypesThatNoLargerOneBeats) {
  const quant::FormatTraits* const formats[] = {
      quant::FindFormat("IQ2_XXS"), quant::FindFormat("Q4_0"), quant::FindFormat("Q8_0"),
      quant::FindFormat("F16")};
  const auto kept = FastestFormats(formats, std::vector<double>{2.0, 1.5, 1.51, 3.0});
  EXPECT_EQ(kept, (std::vector<const quant::FormatTraits*>{formats[1], formats[2], formats[3]}));
  const auto seconds = MeasureSpeeds(std::span(formats).subspan(1, 2), 2);
  ASSERT_TRUE(seconds.ok());
  for (const double of_weight : *seconds) EXPECT_GT(of_weight, 0);
}

// ---- A trained model ---------------------------------------------------------------------------

const char* const kTrained = KVANT_SOURCE_DIR "/models/shakespeare/shakespeare-bf16.gguf";
// A dialogue of the author's that the model has not seen in this form.
const char* const kText =
    "ROMEO:\nWhat say you, good my lord? The night is come,\nAnd all the streets of fair Verona "
    "sleep.\n\nMERCUTIO:\nThen let us walk, and speak no more of love,\nFor he that loves is but a "
    "fool at noon,\nAnd twice a fool when he hath supp'd and slept.\n\nBENVOLIO:\nPeace, peace! I "
    "hear the watch upon the hill;\nThe prince hath sworn to hang the man that brawls.\n\nROMEO:\n"
    "I fear no prince, nor any man that breathes,\nBut her sweet frown, which is a sharper "
    "sword.\n";

using Rows = std::vector<std::vector<float>>;

Rows LogitsOf(const std::string& path) {
  const auto model = Model::Open(path);
  EXPECT_TRUE(model.ok());
  const auto tokens = (*model)->tokenizer().Encode(kText, {});
  const auto session = Session::Create(*model, {});
  Rows rows;
  EXPECT_TRUE((*session)
                  ->AppendAll(*tokens,
                              [&](std::span<const float> logits) -> Status {
                                rows.emplace_back(logits.begin(), logits.end());
                                return {};
                              })
                  .ok());
  return rows;
}

double MeanDivergence(const Rows& base, const Rows& other) {
  double sum = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    sum += evaluate::KlDivergence(evaluate::Normalize(base[i]), evaluate::Normalize(other[i]));
  }
  return sum / static_cast<double>(base.size());
}

// F16 holds what a sample of BF16 shows, and takes as many bytes.
TEST(QuantizeTrained, KeepsTypesWhereThereIsRoomForAll) {
  const auto file = GgufFile::Open(kTrained);
  ASSERT_TRUE(file.ok());
  SizeRequest request = Request(uint64_t{1} << 62);
  request.measure.sample_values = 1;
  const auto plan = PlanForSize(*file, {}, request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->file_bytes, file->file_bytes());
  for (const auto& [tensor, format] : plan->choice) {
    EXPECT_EQ(format, file->FindTensor(tensor)->format) << tensor;
  }
}

TEST(QuantizeTrained, LosesLessThanMixesOfTheSameSize) {
  TemporaryFolder folder;
  const auto file = GgufFile::Open(kTrained);
  ASSERT_TRUE(file.ok());
  const Rows base = LogitsOf(kTrained);
  ASSERT_GT(base.size(), 100u);
  for (const char* mix : {"Q4_K_M", "Q2_K"}) {
    PlanOptions options;
    options.recipe = FindRecipe(mix);
    const auto mixed = PlanQuantization(*file, options);
    ASSERT_TRUE(mixed.ok());
    ASSERT_TRUE(WriteQuantized(*file, *mixed, folder / "mix.gguf", {.threads = 2}).ok());
    SizeRequest request = Request(std::filesystem::file_size(folder / "mix.gguf"));
    std::erase_if(request.measure.formats, [](const auto* format) {
      return static_cast<uint32_t>(format->type) >= 39;  // llama.cpp's of early 2025, as the mixes
    });
    request.measure.threads = 2;
    request.measure.sample_values = 1 << 13;
    const auto plan = PlanForSize(*file, {}, request);
    ASSERT_TRUE(plan.ok());
    options = {};
    options.choice = &plan->choice;
    const auto sized = PlanQuantization(*file, options);
    ASSERT_TRUE(WriteQuantized(*file, *sized, folder / "size.gguf", {.threads = 2}).ok());
    EXPECT_LE(std::filesystem::file_size(folder / "size.gguf"),
              std::filesystem::file_size(folder / "mix.gguf"));
    EXPECT_LT(MeanDivergence(base, LogitsOf(folder / "size.gguf")),
              0.9 * MeanDivergence(base, LogitsOf(folder / "mix.gguf")))
        << mix;
  }
}

// The sum over matrices is about what quantizing all of them does: what the sensitivities are for.
TEST(QuantizeTrained, SensitivitiesPredictTheDivergence) {
  TemporaryFolder folder;
  const auto file = GgufFile::Open(kTrained);
  ASSERT_TRUE(file.ok());
  SizeRequest request = Request({}, 5.0);
  request.measure.formats = {quant::FindFormat("Q4_0"), quant::FindFormat("Q5_K"),
                             quant::FindFormat("Q6_K")};
  request.measure.sample_values = 1 << 13;
  request.calibration = SensitivityOptions{.text = kText, .threads = 2};
  const auto plan = PlanForSize(*file, {}, request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  PlanOptions options;
  options.choice = &plan->choice;
  const auto sized = PlanQuantization(*file, options);
  ASSERT_TRUE(WriteQuantized(*file, *sized, folder / "size.gguf", {.threads = 2}).ok());
  const double divergence = MeanDivergence(LogitsOf(kTrained), LogitsOf(folder / "size.gguf"));
  EXPECT_GT(CostOf(*plan), 0.4 * divergence);
  EXPECT_LT(CostOf(*plan), 2.5 * divergence);
  // The output matrix matters most.
  for (const SizedMatrix& matrix : plan->matrices) {
    EXPECT_GE(matrix.sensitivity, matrix.measured.tensor->name == "token_embd.weight" ? 0.1 : 0);
    EXPECT_LT(matrix.sensitivity, 20);
  }
}

TEST(QuantizeTrained, ChecksTheTextBeforeItMeasures) {
  const auto file = GgufFile::Open(kTrained);
  ASSERT_TRUE(file.ok());
  SizeRequest request = Request({}, 5.0);
  request.measure.on_progress = [](std::string_view, size_t, size_t) -> Status {
    return MakeError(ErrorCode::kCancelled, "it measures");
  };
  request.calibration = SensitivityOptions{.text = "To be"};
  EXPECT_THAT(PlanForSize(*file, {}, request).error().message, HasSubstr("expected 16 at least"));
  request.calibration->text = kText;
  EXPECT_EQ(PlanForSize(*file, {}, request).error().message, "it measures");
}

TEST(QuantizeTrained, ChecksTheModelBeforeItMeasures) {
  const auto file = GgufFile::Open(KVANT_SOURCE_DIR "/models/number-words/number-words-bf16.gguf");
  ASSERT_TRUE(file.ok());
  SizeRequest request = Request({}, 9.0);
  request.measure.on_progress = [](std::string_view, size_t, size_t) -> Status {
    return MakeError(ErrorCode::kCancelled, "it measures");
  };
  request.calibration = SensitivityOptions{.text = kText};
  EXPECT_THAT(PlanForSize(*file, {}, request).error().message,
              HasSubstr("on models without an encoder only"));
}

TEST(QuantizeTrained, IsInterruptedInTheMidstOfAMatrix) {
  const auto file = GgufFile::Open(kTrained);
  ASSERT_TRUE(file.ok());
  SizeRequest request = Request({}, 5.0);
  request.measure.sample_values = 1;
  std::atomic<bool> cancel{false};
  size_t begun = 0;
  request.calibration = SensitivityOptions{.text = kText, .cancel = &cancel};
  request.calibration->on_progress = [&](std::string_view, double) -> Status {
    cancel = ++begun == 3;
    return {};
  };
  const auto plan = PlanForSize(*file, {}, request);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(begun, 3u);
}

}  // namespace
}  // namespace kvant::quantize
