#include "tools/bench/synthetic_model.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "engine/tokenizer/kinds.h"
#include "formats/gguf_writer.h"
#include "kvant/random.h"
#include "quant/format.h"
#include "quant/formats/q4_0.h"

namespace kvant::tools {
namespace {

constexpr int64_t kPoolBlocks = 512;
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// A tensor, and how the file holds its values.
struct Tensor : SyntheticTensor {
  const quant::FormatTraits* format = nullptr;

  uint64_t bytes() const { return static_cast<uint64_t>(format->row_bytes(cols) * rows * experts); }
};

int DimsOf(const SyntheticTensor& tensor) {
  if (tensor.experts > 1) return 3;
  return tensor.rows > 1 ? 2 : 1;
}

// The tensors with the formats that `kvant quantize` would choose.
std::vector<Tensor> ListTensors(const SyntheticModel& model) {
  std::vector<Tensor> list;
  for (SyntheticTensor& tensor : TensorsOf(*model.shape)) list.push_back({std::move(tensor)});
  std::vector<formats::GgufTensor> described;
  for (const Tensor& tensor : list) {
    formats::GgufTensor& entry = described.emplace_back();
    entry.name = tensor.name;
    entry.n_dims = DimsOf(tensor);
    entry.dims[0] = tensor.cols;
    entry.dims[1] = tensor.rows;
    entry.dims[2] = tensor.experts;
  }
  const quantize::RecipeModel facts{.arch = std::string(model.shape->family->name),
                                    .layers = model.shape->layers,
                                    .experts = model.shape->experts,
                                    .heads = model.shape->heads,
                                    .kv_heads = model.shape->kv_heads,
                                    .has_importance = true};
  const auto formats = quantize::ApplyRecipe(*model.recipe, facts, described);
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].format = formats[i] == nullptr || list[i].value.has_value()
                         ? quant::FindFormat("F32")
                         : &quantize::FittingFormat(*formats[i], list[i].cols);
  }
  return list;
}

void AddMetadata(const SyntheticModel& model, formats::GgufWriter& writer) {
  const SyntheticShape& shape = *model.shape;
  AddShape(shape, writer);
  writer.AddString("general.name", model.Name());
  writer.AddU32("general.file_type", model.recipe->file_type);
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

// kPoolBlocks encoded blocks of values with this standard deviation.
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

// Whole blocks drawn from the pool, or whole rows of them, which begin as the pool does.
void FillPiece(std::span<const std::byte> pool, const quant::FormatTraits& format, size_t row_bytes,
               uint64_t seed, std::span<std::byte> piece) {
  SplitMix64 random(seed);
  const auto block_bytes = static_cast<size_t>(format.block_bytes);
  const auto head_bytes = static_cast<size_t>(format.head_bytes);
  for (size_t at = 0; at < piece.size(); at += block_bytes) {
    if (head_bytes > 0 && at % row_bytes == 0) {
      std::memcpy(piece.data() + at, pool.data(), head_bytes);
      at += head_bytes;
    }
    const size_t block = static_cast<size_t>(random.Next() % static_cast<uint64_t>(kPoolBlocks));
    std::memcpy(piece.data() + at, pool.data() + head_bytes + block * block_bytes, block_bytes);
  }
}

using Pools = std::map<const quant::FormatTraits*, std::vector<std::byte>>;

// Writes every `members`-th piece of a matrix, starting with number `member`.
Status WriteMatrix(const formats::GgufWriter& writer, const Tensor& tensor, size_t index,
                   std::span<const std::byte> pool, int member, int members) {
  const auto row_bytes = static_cast<size_t>(tensor.format->row_bytes(tensor.cols));
  const size_t unit =
      tensor.format->head_bytes > 0 ? row_bytes : static_cast<size_t>(tensor.format->block_bytes);
  const size_t piece_bytes = std::max<size_t>(kPieceBytes / unit, 1) * unit;
  std::vector<std::byte> buffer(piece_bytes);
  const size_t pieces = (tensor.bytes() + piece_bytes - 1) / piece_bytes;
  for (size_t i = static_cast<size_t>(member); i < pieces; i += static_cast<size_t>(members)) {
    const uint64_t offset = i * piece_bytes;
    const auto piece = std::span(buffer).first(
        static_cast<size_t>(std::min<uint64_t>(piece_bytes, tensor.bytes() - offset)));
    FillPiece(pool, *tensor.format, row_bytes, (uint64_t{index} << 32) + i, piece);
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
  for (const SyntheticShape& shape : SyntheticShapes()) {
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
    KVANT_TRY(writer.AddTensor(tensor.name, *tensor.format,
                               std::span(dims).first(static_cast<size_t>(DimsOf(tensor)))));
    if (!tensor.value.has_value() && !pools.contains(tensor.format)) {
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
      const Tensor& tensor = tensors[i];
      if (!tensor.value.has_value()) {
        result =
            WriteMatrix(writer, tensor, i, pools.at(tensor.format), member.index, member.count);
      } else if (member.index == 0) {
        const std::vector<float> values(
            static_cast<size_t>(tensor.cols * tensor.rows * tensor.experts), *tensor.value);
        result = writer.WritePiece(i, 0, std::as_bytes(std::span(values)));
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
