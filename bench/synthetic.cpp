#include "bench/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "formats/gguf.h"

namespace kvant::bench {
namespace {

constexpr std::array kShapes = {
    SyntheticShape{"1b", 2048, 16, 32, 8, 8192, 32000},
    SyntheticShape{"3b", 3072, 28, 24, 8, 8192, 32000},
    SyntheticShape{"8b", 4096, 32, 32, 8, 14336, 32000},
};

// Distinct random rows per matrix width; all others repeat them.
constexpr int64_t kDistinctRows = 256;

struct Matrix {
  std::string name;
  int64_t cols, rows;
};

std::vector<Matrix> Matrices(const SyntheticShape& shape) {
  const int64_t kv_rows = shape.dim / shape.heads * shape.kv_heads;
  std::vector<Matrix> list = {{"token_embd.weight", shape.dim, shape.vocab}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    list.push_back({prefix + "attn_norm.weight", shape.dim, 1});
    list.push_back({prefix + "attn_q.weight", shape.dim, shape.dim});
    list.push_back({prefix + "attn_k.weight", shape.dim, kv_rows});
    list.push_back({prefix + "attn_v.weight", shape.dim, kv_rows});
    list.push_back({prefix + "attn_output.weight", shape.dim, shape.dim});
    list.push_back({prefix + "ffn_norm.weight", shape.dim, 1});
    list.push_back({prefix + "ffn_gate.weight", shape.dim, shape.ffn});
    list.push_back({prefix + "ffn_up.weight", shape.dim, shape.ffn});
    list.push_back({prefix + "ffn_down.weight", shape.ffn, shape.dim});
  }
  list.push_back({"output_norm.weight", shape.dim, 1});
  list.push_back({"output.weight", shape.dim, shape.vocab});
  return list;
}

void AddMetadata(const SyntheticShape& shape, formats::GgufWriter& writer) {
  const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
  writer.AddString("general.architecture", "llama");
  writer.AddString("general.name", fmt::format("synthetic {}", shape.name));
  writer.AddU32("llama.context_length", 131072);
  writer.AddU32("llama.embedding_length", u32(shape.dim));
  writer.AddU32("llama.block_count", u32(shape.layers));
  writer.AddU32("llama.feed_forward_length", u32(shape.ffn));
  writer.AddU32("llama.attention.head_count", u32(shape.heads));
  writer.AddU32("llama.attention.head_count_kv", u32(shape.kv_heads));
  writer.AddU32("llama.rope.dimension_count", u32(shape.dim / shape.heads));
  writer.AddF32("llama.rope.freq_base", 500000.0f);
  writer.AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  while (static_cast<int64_t>(tokens.size()) < shape.vocab) {
    tokens.push_back(fmt::format("\u2581w{}", tokens.size()));
    types.push_back(1);
  }
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", tokens);
  writer.AddF32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
  writer.AddI32s("tokenizer.ggml.token_type", types);
  writer.AddU32("tokenizer.ggml.bos_token_id", 1);
  writer.AddU32("tokenizer.ggml.eos_token_id", 2);
  writer.AddU32("tokenizer.ggml.unknown_token_id", 0);
}

// kDistinctRows encoded rows of standard deviation 1 / sqrt(cols).
std::vector<std::byte> RandomRows(const quant::FormatTraits& format, int64_t cols,
                                  std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(cols)));
  std::vector<float> values(static_cast<size_t>(kDistinctRows * cols));
  for (float& value : values) value = normal(random);
  std::vector<std::byte> bytes(static_cast<size_t>(kDistinctRows * format.row_bytes(cols)));
  format.encode(values.data(), nullptr, bytes.data(), static_cast<int64_t>(values.size()));
  return bytes;
}

}  // namespace

Result<SyntheticShape> FindShape(std::string_view name) {
  std::string known;
  for (const SyntheticShape& shape : kShapes) {
    if (shape.name == name) return shape;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", shape.name);
  }
  return MakeError(ErrorCode::kInvalid, "unknown shape \"{}\" (known: {})", name, known);
}

Status WriteSynthetic(const SyntheticShape& shape, const quant::FormatTraits& format,
                      const std::string& path) {
  const quant::FormatTraits& f32 = *quant::FindFormat("F32");
  const std::vector<Matrix> matrices = Matrices(shape);
  formats::GgufWriter writer;
  AddMetadata(shape, writer);
  for (const Matrix& matrix : matrices) {
    const bool vector = matrix.rows == 1;
    const int64_t dims[] = {matrix.cols, matrix.rows};
    KVANT_TRY(writer.AddTensor(matrix.name, vector ? f32 : format,
                               std::span(dims).first(vector ? 1 : 2)));
  }
  KVANT_TRY(writer.Begin(path));
  std::mt19937 random(42);
  const std::vector<std::byte> dim_rows = RandomRows(format, shape.dim, random);
  const std::vector<std::byte> ffn_rows = RandomRows(format, shape.ffn, random);
  for (const Matrix& matrix : matrices) {
    if (matrix.rows == 1) {
      const std::vector<float> ones(static_cast<size_t>(matrix.cols), 1.0f);
      KVANT_TRY(writer.WriteTensor(std::as_bytes(std::span(ones))));
      continue;
    }
    const std::vector<std::byte>& rows = matrix.cols == shape.dim ? dim_rows : ffn_rows;
    const size_t row_bytes = static_cast<size_t>(format.row_bytes(matrix.cols));
    const size_t first = random() % static_cast<size_t>(kDistinctRows);
    std::vector<std::byte> data;
    data.reserve(row_bytes * static_cast<size_t>(matrix.rows));
    for (size_t row = 0; row < static_cast<size_t>(matrix.rows); ++row) {
      const auto begin =
          rows.begin() + static_cast<std::ptrdiff_t>((first + row) % kDistinctRows * row_bytes);
      data.insert(data.end(), begin, begin + static_cast<std::ptrdiff_t>(row_bytes));
    }
    KVANT_TRY(writer.WriteTensor(data));
  }
  return writer.Finish();
}

}  // namespace kvant::bench
