// Quantizing a file: what is written, what is kept, what is refused, and that neither threads nor
// instruction sets change a byte.
#include "base/result.h"
#include "engine/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "cpu/dispatch.h"
#include "formats/gguf_resplit.h"
#include "formats/gguf_writer.h"
#include "quant/format.h"
#include "quant/interleaved/interleaved.h"
#include "tests/temporary_folder.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using test::TemporaryFolder;
using testing::HasSubstr;

struct Matrix {
  const char* name;
  std::vector<int64_t> dims;
};

const std::vector<Matrix> kMatrices = {
    {"token_embd.weight", {256, 70}},      {"output.weight", {256, 70}},
    {"blk.0.attn_norm.weight", {256}},     {"blk.0.attn_v.weight", {256, 33}},
    {"blk.0.ffn_down.weight", {288, 300}}, {"blk.0.ffn_up_exps.weight", {256, 5, 3}},
};

// Normal weights; `poison` replaces value 300 of blk.0.attn_v.weight.
void WriteModel(const std::string& path, const char* format_name, float poison = 0) {
  const auto* format = quant::FindFormat(format_name);
  formats::GgufWriter writer(64);
  writer.AddString("general.architecture", "llama");
  writer.AddU32("llama.block_count", 1);
  writer.AddString("general.name", "m");
  std::vector<std::vector<float>> values;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const Matrix& matrix : kMatrices) {
    ASSERT_TRUE(writer.AddTensor(matrix.name, *format, matrix.dims).ok());
    size_t count = 1;
    for (const int64_t size : matrix.dims) count *= static_cast<size_t>(size);
    auto& tensor = values.emplace_back(count);
    for (float& value : tensor) value = normal(random);
    if (poison != 0 && matrix.name == std::string("blk.0.attn_v.weight")) tensor[300] = poison;
  }
  ASSERT_TRUE(writer.Begin(path).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto count = static_cast<int64_t>(values[i].size());
    std::vector<std::byte> bytes(static_cast<size_t>(format->row_bytes(count)));
    format->encode(values[i].data(), nullptr, bytes.data(), count);
    ASSERT_TRUE(writer.WriteTensor(bytes).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

PlanOptions Options(const char* recipe) {
  PlanOptions options;
  options.recipe = FindRecipe(recipe);
  return options;
}

Result<std::vector<std::string>> Quantize(const std::string& input, const std::string& output,
                                          const PlanOptions& plan_options,
                                          const WriteOptions& write = {}) {
  KVANT_ASSIGN(const GgufFile file, GgufFile::Open(input));
  KVANT_ASSIGN(const QuantizePlan plan, PlanQuantization(file, plan_options));
  return WriteQuantized(file, plan, output, write);
}

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void ExpectFails(const Result<std::vector<std::string>>& result, const std::string& message) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(result.error().message, HasSubstr(message));
}

TEST(QuantizeModel, StoresWhatTheScalarEncoderMakesOfEveryRow) {
  TemporaryFolder folder;
  WriteModel(folder / "in.gguf", "F32");
  for (const Recipe& recipe : AllRecipes()) {
    SCOPED_TRACE(recipe.name);
    formats::Imatrix imatrix;
    PlanOptions options = Options(recipe.name);
    for (const Matrix& matrix : kMatrices) {
      const size_t count = static_cast<size_t>(matrix.dims[0] * (matrix.dims.size() > 2 ? 3 : 1));
      formats::ImatrixEntry entry{std::vector<double>(count), {1}};
      for (size_t i = 0; i < count; ++i) entry.sums[i] = 0.5 + static_cast<double>(i % 17);
      imatrix.entries[matrix.name] = entry;
    }
    options.importance = &imatrix;
    ASSERT_TRUE(Quantize(folder / "in.gguf", folder / "out.gguf", options).ok());
    const auto in = GgufFile::Open(folder / "in.gguf");
    const auto out = GgufFile::Open(folder / "out.gguf");
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(*out->GetU32("general.file_type"), recipe.file_type);
    for (size_t t = 0; t < kMatrices.size(); ++t) {
      const auto& before = in->tensors()[t];
      const auto& after = out->tensors()[t];
      ASSERT_EQ(after.name, kMatrices[t].name);
      if (after.format == before.format) {
        EXPECT_EQ(std::memcmp(after.data, before.data, before.size_bytes), 0) << after.name;
        continue;
      }
      std::vector<std::byte> row(static_cast<size_t>(after.row_bytes()));
      const auto weights = imatrix.Importance(before);
      ASSERT_TRUE(weights.ok());
      const bool weighed = after.format->quantized();
      for (int64_t r = 0; r < after.rows(); ++r) {
        const int64_t columns = after.dims[0];
        after.format->encode(reinterpret_cast<const float*>(before.data) + r * columns,
                             weighed ? weights->data() + r / after.dims[1] * columns : nullptr,
                             row.data(), columns);
        ASSERT_EQ(std::memcmp(after.data + r * after.row_bytes(), row.data(), row.size()), 0)
            << after.name << " row " << r;
      }
    }
  }
}

TEST(QuantizeModel, WritesTheSameBytesOnEveryInstructionSetAndThreadCount) {
  TemporaryFolder folder;
  WriteModel(folder / "in.gguf", "F16");
  const char* before = std::getenv("KVANT_ISA");
  const std::string saved = before != nullptr ? before : "";
  for (const char* recipe : {"Q4_K_M", "Q4_0", "Q8_0", "IQ4_XS", "IQ3_M", "Q2_K"}) {
    std::string expected;
    for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
      if (!isa.supported) continue;
      setenv("KVANT_ISA", isa.name, 1);
      for (const int threads : {1, 3}) {
        WriteOptions write;
        write.threads = threads;
        ASSERT_TRUE(Quantize(folder / "in.gguf", folder / "out.gguf", Options(recipe), write).ok());
        const std::string bytes = FileBytes(folder / "out.gguf");
        if (expected.empty()) expected = bytes;
        EXPECT_TRUE(bytes == expected) << recipe << " " << isa.name << " " << threads;
      }
    }
  }
  saved.empty() ? unsetenv("KVANT_ISA") : setenv("KVANT_ISA", saved.c_str(), 1);
}

// Copying gives back pages of the file as it goes, but not those of tensors that were unpacked.
TEST(QuantizeModel, CopiesInterleavedRowsAsPlainOnes) {
  TemporaryFolder folder;
  constexpr int64_t kCols = 1024;
  constexpr int64_t kRows = 512;
  const quant::InterleavedType& type = *quant::FindInterleavedType(208);
  std::vector<std::byte> bytes(static_cast<size_t>(kRows * type.row_bytes(kCols)));
  std::mt19937 random(3);
  for (size_t i = 0; i < bytes.size(); ++i) {  // scales of 8 rows, then their codes
    const bool high_byte_of_scale = i % 272 < 16 && i % 2 == 1;
    bytes[i] = high_byte_of_scale ? std::byte{0x2c} : static_cast<std::byte>(random());
  }
  formats::GgufTensor tensor;
  tensor.name = "blk.0.attn_q.weight";
  tensor.type = quant::TensorType{type.id};
  tensor.n_dims = 2;
  tensor.dims[0] = kCols;
  tensor.dims[1] = kRows;
  tensor.size_bytes = bytes.size();
  formats::GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  ASSERT_TRUE(writer.AddTensor(tensor).ok());
  ASSERT_TRUE(writer.Begin(folder / "in.gguf").ok());
  ASSERT_TRUE(writer.WriteTensor(bytes).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto in = GgufFile::Open(folder / "in.gguf");
  ASSERT_TRUE(in.ok());
  const auto plan = PlanQuantization(*in, {});
  ASSERT_TRUE(plan.ok());
  // The second time shows whether the first one left the tensor as it was.
  ASSERT_TRUE(WriteQuantized(*in, *plan, folder / "first.gguf", {.threads = 2}).ok());
  ASSERT_TRUE(WriteQuantized(*in, *plan, folder / "out.gguf", {.threads = 2}).ok());
  const auto out = GgufFile::Open(folder / "out.gguf");
  ASSERT_TRUE(out.ok());
  const formats::GgufTensor& copied = out->tensors()[0];
  ASSERT_STREQ(copied.format->name, "Q8_0");
  std::vector<std::byte> plain(copied.size_bytes);
  const int64_t plain_bytes = type.format().row_bytes(kCols);
  for (int64_t row = 0; row < kRows; row += type.rows) {
    type.unpack(bytes.data() + row * type.row_bytes(kCols), kCols,
                plain.data() + row * plain_bytes);
  }
  EXPECT_EQ(std::memcmp(copied.data, plain.data(), plain.size()), 0);
}

TEST(QuantizeModel, KeepsAlignmentMetadataAndSplitsAsAsked) {
  TemporaryFolder folder;
  WriteModel(folder / "in.gguf", "F16");
  {
    const auto file = GgufFile::Open(folder / "in.gguf");
    const auto shards = formats::PlanSplit(*file, folder / "shard", {.tensors_max = 2});
    ASSERT_TRUE(formats::WriteSplit(*file, *shards, nullptr).ok());
  }
  PlanOptions options = Options("Q8_0");
  options.metadata = {{"general.name", std::string("other")},
                      {"llama.block_count", int64_t{1}},
                      {"new.float", 0.5},
                      {"new.bool", true},
                      {"new.negative", int64_t{-3}}};
  const std::string shard = folder / "shard-00002-of-00003.gguf";
  const auto joined = Quantize(shard, folder / "joined.gguf", options);
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  const auto file = GgufFile::Open(folder / "joined.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->shards(), 1);
  EXPECT_EQ(file->alignment(), 64u);
  EXPECT_EQ(**file->GetString("general.name"), "other");
  EXPECT_EQ(file->Find("llama.block_count")->type, formats::GgufType::kUint32);
  EXPECT_EQ(*file->GetF32("new.float"), 0.5f);
  EXPECT_EQ(*file->GetBool("new.bool"), true);
  EXPECT_EQ(file->Find("new.negative")->type, formats::GgufType::kInt32);
  EXPECT_EQ(file->Find("split.count"), nullptr);

  WriteOptions write;
  write.keep_split = true;
  const auto kept = Quantize(shard, folder / "q", options, write);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  ASSERT_EQ(kept->size(), 3u);
  const auto split = GgufFile::Open(kept->back());
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->shards(), 3);
  for (size_t t = 0; t < kMatrices.size(); ++t) {
    const auto& a = file->tensors()[t];
    const auto& b = *split->FindTensor(a.name);
    ASSERT_EQ(a.format, b.format);
    EXPECT_EQ(std::memcmp(a.data, b.data, a.size_bytes), 0);
  }
  ExpectFails(Quantize(shard, folder / "q", options, write), "exists already");
}

TEST(QuantizeModel, ObeysRulesForSingleTensors) {
  TemporaryFolder folder;
  WriteModel(folder / "in.gguf", "F32");
  const auto file = GgufFile::Open(folder / "in.gguf");
  PlanOptions options = Options("Q4_0");
  options.tensor_rules = {{"ffn_(down|up)", quant::FindFormat("Q6_K")},
                          {"^blk", quant::FindFormat("Q5_1")}};
  options.output_format = quant::FindFormat("F16");
  options.embedding_format = quant::FindFormat("Q8_0");
  const auto plan = PlanQuantization(*file, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  std::vector<std::string> formats;
  for (const TensorPlan& planned : plan->tensors) formats.emplace_back(planned.format->name);
  EXPECT_THAT(formats, testing::ElementsAre("Q8_0", "F16", "F32", "Q5_1", "Q8_0", "Q6_K"));
  EXPECT_THAT(plan->notes, testing::ElementsAre(HasSubstr("288 values, which Q6_K cannot hold")));

  options = Options("Q4_K_M");
  options.pure = true;
  options.leave_output = true;
  const auto pure = PlanQuantization(*file, options);
  ASSERT_TRUE(pure.ok());
  formats.clear();
  for (const TensorPlan& planned : pure->tensors) formats.emplace_back(planned.format->name);
  EXPECT_THAT(formats, testing::ElementsAre("Q4_K", "F32", "F32", "Q4_K", "Q5_0", "Q4_K"));
}

// A file with a pooling makes vectors; what an option says about a matrix counts more.
TEST(QuantizeModel, GivesModelsForVectorsTheirOwnFallbacks) {
  const TemporaryFolder folder;
  const auto types = [&](bool pools, PlanOptions options) {
    formats::GgufWriter writer(32);
    writer.AddString("general.architecture", "bert");
    if (pools) writer.AddU32("bert.pooling_type", 1);
    const auto& f32 = *quant::FindFormat("F32");
    const std::string path = folder / "bert.gguf";
    const char* const kNames[] = {"token_embd.weight", "blk.0.attn_q.weight",
                                  "blk.0.ffn_up.weight"};
    for (const char* name : kNames)
      EXPECT_TRUE(writer.AddTensor(name, f32, std::vector<int64_t>{96, 4}).ok());
    EXPECT_TRUE(writer.Begin(path).ok());
    const std::vector<std::byte> zeros(96 * 4 * sizeof(float));
    for (size_t i = 0; i < std::size(kNames); ++i) EXPECT_TRUE(writer.WriteTensor(zeros).ok());
    EXPECT_TRUE(writer.Finish().ok());
    options.tensor_rules.push_back({"ffn_up", quant::FindFormat("Q4_K")});
    const auto file = GgufFile::Open(path);
    const auto plan = PlanQuantization(*file, options);
    std::string found;
    for (const TensorPlan& planned : plan->tensors)
      found += std::string(planned.format->name) + " ";
    return found;
  };
  EXPECT_EQ(types(true, Options("Q4_K_M")), "Q5_0 Q8_0 Q5_0 ");
  EXPECT_EQ(types(false, Options("Q4_K_M")), "Q8_0 Q5_0 Q5_0 ");
  PlanOptions pure = Options("Q4_K_M");
  pure.pure = true;
  EXPECT_EQ(types(true, pure), "Q5_0 Q5_0 Q5_0 ");
}

TEST(QuantizeModel, RefusesWhatWouldHarm) {
  TemporaryFolder folder;
  WriteModel(folder / "in.gguf", "F32");
  const std::string in = folder / "in.gguf";
  const std::string out = folder / "out.gguf";
  ExpectFails(Quantize(in, in, Options("Q8_0")), "the output is also an input");
  ExpectFails(Quantize(in, "/dev/null", Options("Q8_0")), "expected a regular file");
  ExpectFails(Quantize(in, out, Options("IQ2_XS")), "needs an importance matrix");

  PlanOptions options = Options("Q4_0");
  options.tensor_rules = {{"attn_(", quant::FindFormat("Q6_K")}};
  ExpectFails(Quantize(in, out, options), "is no regular expression");
  options.tensor_rules = {{"nothing", quant::FindFormat("Q6_K")}};
  ExpectFails(Quantize(in, out, options), "matches no matrix");
  options = Options("Q4_0");
  options.metadata = {{"llama.block_count", std::string("one")}};
  ExpectFails(Quantize(in, out, options), "uint32");
  for (const char* layout : {"general.alignment", "split.count"}) {
    options.metadata = {{layout, int64_t{32}}};
    ExpectFails(Quantize(in, out, options), "cannot be set");
  }
  options.metadata = {{"llama.block_count", int64_t{-1}}};
  ExpectFails(Quantize(in, out, options), "uint32");

  formats::Imatrix imatrix;
  imatrix.entries["blk.9.attn_v.weight"] = {std::vector<double>(256, 1), {1}};
  options = Options("Q4_0");
  options.importance = &imatrix;
  options.importance_file = "other.imatrix";
  ExpectFails(Quantize(in, out, options), "other.imatrix: has entries for none");
  imatrix.entries["blk.0.attn_v.weight"] = {std::vector<double>(128, 1), {1}};
  ExpectFails(Quantize(in, out, options), "blk.0.attn_v.weight");

  ASSERT_TRUE(Quantize(in, folder / "q8.gguf", Options("Q8_0")).ok());
  ExpectFails(Quantize(folder / "q8.gguf", out, Options("Q4_0")), "is quantized already (Q8_0)");
  ExpectFails(Quantize(folder / "q8.gguf", out, Options("F32")), "is quantized already (Q8_0)");
  options = Options("F32");
  options.re_quantizing = ReQuantizing::kAllowed;
  EXPECT_TRUE(Quantize(folder / "q8.gguf", folder / "f32.gguf", options).ok());
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(QuantizeModel, NamesTheFirstNonFiniteWeight) {
  TemporaryFolder folder;
  const std::string out = folder / "out.gguf";
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -INFINITY}) {
    WriteModel(folder / "in.gguf", "F16", poison);
    for (const char* recipe : {"Q8_0", "F16"}) {
      ExpectFails(Quantize(folder / "in.gguf", out, Options(recipe)),
                  "tensor \"blk.0.attn_v.weight\" holds");
      ExpectFails(Quantize(folder / "in.gguf", out, Options(recipe)), "row 1, column 44");
    }
    EXPECT_FALSE(std::filesystem::exists(out));
    WriteOptions write;
    write.non_finite = NonFinite::kAllowed;
    EXPECT_TRUE(Quantize(folder / "in.gguf", out, Options("Q8_0"), write).ok());
    std::filesystem::remove(out);
  }
}

TEST(QuantizeModel, LeavesNothingWhenItIsStopped) {
  TemporaryFolder folder;
  WriteModel(folder / "in.gguf", "F32");
  std::ofstream(folder / "out.gguf") << "precious";
  WriteOptions write;
  int calls = 0;
  write.on_progress = [&](const QuantizeProgress& progress) -> Status {
    EXPECT_LE(progress.bytes_done, progress.bytes_total);
    if (++calls == 3) return MakeError(ErrorCode::kCancelled, "stop");
    return {};
  };
  const auto result = Quantize(folder / "in.gguf", folder / "out.gguf", Options("Q8_0"), write);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(FileBytes(folder / "out.gguf"), "precious");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

}  // namespace
}  // namespace kvant::quantize
