#include "tools/synthetic_model.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "engine/arch/family.h"
#include "engine/tokenizer/kinds.h"
#include "formats/gguf_writer.h"
#include "kvant/random.h"
#include "quant/q4_0.h"

namespace kvant::tools {
namespace {

constexpr std::array kShapes = {
    SyntheticShape{"tiny", 256, 2, 4, 2, 512, 512},  // for tests of the program
    SyntheticShape{"1b", 2048, 16, 32, 8, 8192, 32000},
    SyntheticShape{"3b", 3072, 28, 24, 8, 8192, 32000},
    SyntheticShape{"8b", 4096, 32, 32, 8, 14336, 32000},
    SyntheticShape{"moe-tiny", 256, 2, 4, 2, 256, 512, 64, 8, 2},
    SyntheticShape{"moe-30b-a3b", 2048, 48, 32, 4, 768, 151936, 128, 128, 8},
    SyntheticShape{"moe-4b", 2048, 6, 32, 4, 768, 151936, 128, 128, 8},  // six layers of it
    SyntheticShape{"deepseek-tiny", 256, 2, 4, 1, 256, 512, 0, 8, 2, 128, 64, 32, 64, 256, 512},
    SyntheticShape{"deepseek-lite", 2048, 27, 16, 1, 1408, 102400, 0, 64, 6, 512, 128, 64, 128,
                   2816, 10944},
};

constexpr int64_t kPoolBlocks = 512;
constexpr int64_t kPieceBytes = int64_t{1} << 20;

struct Tensor {
  std::string name;
  int64_t cols, rows;
  int64_t experts = 1;  // matrices, one after the other
  const quant::FormatTraits* format = nullptr;

  uint64_t bytes() const { return static_cast<uint64_t>(format->row_bytes(cols) * rows * experts); }
};

void ListFeedForward(const SyntheticShape& shape, int64_t layer, const std::string& prefix,
                     std::vector<Tensor>& list) {
  const auto add_dense = [&](int64_t width, const std::string& suffix) {
    list.push_back({prefix + "ffn_gate" + suffix, shape.dim, width});
    list.push_back({prefix + "ffn_up" + suffix, shape.dim, width});
    list.push_back({prefix + "ffn_down" + suffix, width, shape.dim});
  };
  if (shape.experts == 0) return add_dense(shape.ffn, ".weight");
  if (layer == 0 && shape.dense_ffn > 0) return add_dense(shape.dense_ffn, ".weight");
  if (shape.shared_ffn > 0) add_dense(shape.shared_ffn, "_shexp.weight");
  list.push_back({prefix + "ffn_gate_inp.weight", shape.dim, shape.experts});
  list.push_back({prefix + "ffn_gate_exps.weight", shape.dim, shape.ffn, shape.experts});
  list.push_back({prefix + "ffn_up_exps.weight", shape.dim, shape.ffn, shape.experts});
  list.push_back({prefix + "ffn_down_exps.weight", shape.ffn, shape.dim, shape.experts});
}

const arch::Family& FamilyOf(const SyntheticShape& shape) {
  if (shape.latent > 0) return arch::deepseek2::kFamily;
  return shape.experts == 0 ? arch::llama::kFamily : arch::qwen3moe::kFamily;
}

void ListAttention(const SyntheticShape& shape, const std::string& prefix,
                   std::vector<Tensor>& list) {
  const int64_t q_rows = shape.HeadDim() * shape.heads;
  const int64_t kv_rows = shape.HeadDim() * shape.kv_heads;
  list.push_back({prefix + "attn_q.weight", shape.dim, q_rows});
  list.push_back({prefix + "attn_k.weight", shape.dim, kv_rows});
  list.push_back({prefix + "attn_v.weight", shape.dim, kv_rows});
  if (shape.experts > 0) {
    list.push_back({prefix + "attn_q_norm.weight", shape.HeadDim(), 1});
    list.push_back({prefix + "attn_k_norm.weight", shape.HeadDim(), 1});
  }
  list.push_back({prefix + "attn_output.weight", q_rows, shape.dim});
}

void ListLatentAttention(const SyntheticShape& shape, const std::string& prefix,
                         std::vector<Tensor>& list) {
  list.push_back({prefix + "attn_q.weight", shape.dim, shape.heads * (shape.nope + shape.rope)});
  list.push_back({prefix + "attn_kv_a_mqa.weight", shape.dim, shape.latent + shape.rope});
  list.push_back({prefix + "attn_kv_a_norm.weight", shape.latent, 1});
  list.push_back({prefix + "attn_k_b.weight", shape.nope, shape.latent, shape.heads});
  list.push_back({prefix + "attn_v_b.weight", shape.latent, shape.v_dim, shape.heads});
  list.push_back({prefix + "attn_output.weight", shape.heads * shape.v_dim, shape.dim});
}

std::vector<Tensor> ListTensors(const SyntheticShape& shape) {
  std::vector<Tensor> list = {{"token_embd.weight", shape.dim, shape.vocab}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    list.push_back({prefix + "attn_norm.weight", shape.dim, 1});
    shape.latent > 0 ? ListLatentAttention(shape, prefix, list)
                     : ListAttention(shape, prefix, list);
    list.push_back({prefix + "ffn_norm.weight", shape.dim, 1});
    ListFeedForward(shape, layer, prefix, list);
  }
  list.push_back({"output_norm.weight", shape.dim, 1});
  list.push_back({"output.weight", shape.dim, shape.vocab});
  return list;
}

// The tensors with the formats that `kvant quantize` would choose.
std::vector<Tensor> ListTensors(const SyntheticModel& model) {
  std::vector<Tensor> list = ListTensors(*model.shape);
  std::vector<formats::GgufTensor> described;
  for (const Tensor& tensor : list) {
    formats::GgufTensor& entry = described.emplace_back();
    entry.name = tensor.name;
    entry.n_dims = tensor.rows == 1 ? 1 : tensor.experts == 1 ? 2 : 3;
    entry.dims[0] = tensor.cols;
    entry.dims[1] = tensor.rows;
    entry.dims[2] = tensor.experts;
  }
  const quantize::RecipeModel facts{.arch = std::string(FamilyOf(*model.shape).name),
                                    .layers = model.shape->layers,
                                    .experts = model.shape->experts,
                                    .heads = model.shape->heads,
                                    .kv_heads = model.shape->kv_heads,
                                    .has_importance = true};
  const auto formats = quantize::ApplyRecipe(*model.recipe, facts, described);
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].format = formats[i] == nullptr ? quant::FindFormat("F32")
                                           : &quantize::FittingFormat(*formats[i], list[i].cols);
  }
  return list;
}

void AddMetadata(const SyntheticModel& model, formats::GgufWriter& writer) {
  const SyntheticShape& shape = *model.shape;
  const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
  const std::string_view arch = FamilyOf(shape).name;
  const auto key = [arch](std::string_view name) { return fmt::format("{}.{}", arch, name); };
  writer.AddString("general.architecture", arch);
  writer.AddString("general.name", model.Name());
  writer.AddU32("general.file_type", model.recipe->file_type);
  writer.AddU32(key("context_length"), 131072);
  writer.AddU32(key("embedding_length"), u32(shape.dim));
  writer.AddU32(key("block_count"), u32(shape.layers));
  writer.AddU32(key("feed_forward_length"), u32(shape.dense_ffn > 0 ? shape.dense_ffn : shape.ffn));
  writer.AddU32(key("attention.head_count"), u32(shape.heads));
  writer.AddU32(key("attention.head_count_kv"), u32(shape.kv_heads));
  writer.AddU32(key("rope.dimension_count"), u32(shape.latent > 0 ? shape.rope : shape.HeadDim()));
  if (shape.latent > 0) {
    writer.AddU32(key("attention.kv_lora_rank"), u32(shape.latent));
    writer.AddU32(key("attention.key_length"), u32(shape.latent + shape.rope));
    writer.AddU32(key("attention.value_length"), u32(shape.latent));
    writer.AddU32(key("attention.key_length_mla"), u32(shape.nope + shape.rope));
    writer.AddU32(key("attention.value_length_mla"), u32(shape.v_dim));
    writer.AddU32(key("leading_dense_block_count"), shape.dense_ffn > 0 ? 1 : 0);
  }
  if (shape.head_dim != 0) {
    writer.AddU32(key("attention.key_length"), u32(shape.head_dim));
    writer.AddU32(key("attention.value_length"), u32(shape.head_dim));
  }
  if (shape.experts > 0) {
    writer.AddU32(key("expert_count"), u32(shape.experts));
    writer.AddU32(key("expert_used_count"), u32(shape.experts_used));
    writer.AddU32(key("expert_feed_forward_length"), u32(shape.ffn));
  }
  writer.AddF32(key("rope.freq_base"), 500000.0f);
  writer.AddF32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
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
  writer.AddString("tokenizer.ggml.model", kSentencePieceKind);
  writer.AddStrings("tokenizer.ggml.tokens", tokens);
  writer.AddF32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
  writer.AddI32s("tokenizer.ggml.token_type", types);
  writer.AddU32("tokenizer.ggml.bos_token_id", 1);
  writer.AddU32("tokenizer.ggml.eos_token_id", 2);
  writer.AddU32("tokenizer.ggml.unknown_token_id", 0);
}

// A sum of four uniform numbers: mean 0, variance 1, nearly a bell curve.
float RandomNormal(Xoshiro256& random) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(random.Next() >> 40) * 0x1p-24f - 0.5f;
  return sum * std::sqrt(3.0f);
}

// kPoolBlocks encoded blocks of numbers with this standard deviation.
std::vector<std::byte> RandomBlocks(const cpu::KernelTable& kernels,
                                    const quant::FormatTraits& format, float deviation) {
  Xoshiro256 random(42);
  std::vector<float> values(static_cast<size_t>(kPoolBlocks * format.block_values));
  for (float& value : values) value = RandomNormal(random) * deviation;
  const int64_t cols = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(cols)));
  kernels.encode[static_cast<size_t>(FormatIndex(format))](
      {&format, values.data(), nullptr, 1, cols, blocks.data()});
  return blocks;
}

// Whole blocks drawn from the pool.
void FillPiece(std::span<const std::byte> pool, size_t block_bytes, uint64_t seed,
               std::span<std::byte> piece) {
  SplitMix64 random(seed);
  for (size_t at = 0; at < piece.size(); at += block_bytes) {
    const size_t block = static_cast<size_t>(random.Next() % static_cast<uint64_t>(kPoolBlocks));
    std::memcpy(piece.data() + at, pool.data() + block * block_bytes, block_bytes);
  }
}

using Pools = std::map<const quant::FormatTraits*, std::vector<std::byte>>;

// Writes every `members`-th piece of a matrix, starting with number `member`.
Status WriteMatrix(const formats::GgufWriter& writer, const Tensor& tensor, size_t index,
                   std::span<const std::byte> pool, int member, int members) {
  const auto block_bytes = static_cast<size_t>(tensor.format->block_bytes);
  const size_t piece_bytes = kPieceBytes / block_bytes * block_bytes;
  std::vector<std::byte> buffer(piece_bytes);
  const size_t pieces = (tensor.bytes() + piece_bytes - 1) / piece_bytes;
  for (size_t i = static_cast<size_t>(member); i < pieces; i += static_cast<size_t>(members)) {
    const uint64_t offset = i * piece_bytes;
    const auto piece = std::span(buffer).first(
        static_cast<size_t>(std::min<uint64_t>(piece_bytes, tensor.bytes() - offset)));
    FillPiece(pool, block_bytes, (uint64_t{index} << 32) + i, piece);
    KVANT_TRY(writer.WritePiece(index, offset, piece));
  }
  return {};
}

}  // namespace

std::string SyntheticModel::Name() const {
  return fmt::format("synthetic {} {}", shape->name, recipe->name);
}

Result<SyntheticModel> ParseSynthetic(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view type =
      colon == std::string_view::npos ? quant::Q4_0::kName : text.substr(colon + 1);
  SyntheticModel model{nullptr, quantize::FindRecipe(type)};
  std::string known;
  for (const SyntheticShape& shape : kShapes) {
    if (shape.name == name) model.shape = &shape;
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  if (model.shape == nullptr) {
    return MakeError(ErrorCode::kInvalid, "expected a shape out of {}, found '{}'", known, name);
  }
  if (model.recipe == nullptr) {
    return MakeError(ErrorCode::kInvalid,
                     "expected a type as in 'kvant quantize', such as Q4_0 or Q4_K_M, found '{}'",
                     type);
  }
  return model;
}

uint64_t SyntheticBytes(const SyntheticModel& model) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : ListTensors(model)) bytes += tensor.bytes();
  return bytes;
}

Status WriteSynthetic(const SyntheticModel& model, const std::string& path, int threads) {
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  const std::vector<Tensor> tensors = ListTensors(model);
  // Rows of unit length on average keep activations in range.
  const float deviation = 1.0f / std::sqrt(static_cast<float>(model.shape->dim));
  formats::GgufWriter writer;
  AddMetadata(model, writer);
  Pools pools;
  for (const Tensor& tensor : tensors) {
    const int64_t dims[] = {tensor.cols, tensor.rows, tensor.experts};
    const bool vector = tensor.rows == 1;
    KVANT_TRY(writer.AddTensor(tensor.name, *tensor.format,
                               std::span(dims).first(vector                ? 1
                                                     : tensor.experts == 1 ? 2
                                                                           : 3)));
    if (!vector && !pools.contains(tensor.format)) {
      pools[tensor.format] = RandomBlocks(*kernels, *tensor.format, deviation);
    }
  }
  KVANT_TRY(writer.Begin(path));
  KVANT_TRY(writer.Reserve());
  ThreadPool pool(threads);
  std::vector<Status> results(static_cast<size_t>(threads));
  pool.Run([&](const ThreadPool::Member& member) {
    Status& result = results[static_cast<size_t>(member.index)];
    for (size_t i = 0; i < tensors.size() && result.ok(); ++i) {
      if (tensors[i].rows > 1) {
        result = WriteMatrix(writer, tensors[i], i, pools.at(tensors[i].format), member.index,
                             member.count);
      } else if (member.index == 0) {  // weights of a norm
        const std::vector<float> ones(static_cast<size_t>(tensors[i].cols), 1.0f);
        result = writer.WritePiece(i, 0, std::as_bytes(std::span(ones)));
      }
    }
  });
  for (const Status& result : results) KVANT_TRY(result);
  return writer.Finish();
}

Result<MemoryFile> MemoryFile::Create(const char* name) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0) return MemoryFile(fd);
  return MakeError(ErrorCode::kIo, "cannot create a file in memory: {}", std::strerror(errno));
}

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

std::string MemoryFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

}  // namespace kvant::tools
