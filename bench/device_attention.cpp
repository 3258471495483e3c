// Times the attention kernels of a CUDA device alone, on random keys and values:
//
//     device_attention DEPTH ROWS KV_HEADS HEADS_PER_KV DIM f16|q8 [REPETITIONS]
//
// Each row is a query behind DEPTH positions; up to 63 rows share all of them, as beams do, more
// are a prompt's chunk behind them. Prints one line of JSON: the median time of an attention
// without its merge, the bytes of keys and values that it has to read, and its
// multiply-accumulates.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "cuda/device.h"
#include "engine/kv/stores/device_store.h"

namespace kvant {
namespace {

constexpr int64_t kFewRows = 63;

struct Problem {
  int64_t depth, rows, kv_heads, heads_per_kv, dim;
  bool q8;
  int repetitions;
};

int64_t Number(const char* text) { return std::strtoll(text, nullptr, 10); }

// The tables of the pass, in memory that the device reads.
Result<cuda::Memory> MakeTables(cuda::Device& device, const Problem& p, int64_t pieces,
                                cuda::PassTables* tables) {
  const int64_t end = p.depth + (p.rows > kFewRows ? p.rows : 1);
  const int64_t blocks = (end + cuda::kBlockPositions - 1) / cuda::kBlockPositions;
  const size_t positions_bytes = RoundUp(static_cast<size_t>(p.rows) * sizeof(int32_t), 16);
  const size_t pieces_bytes = static_cast<size_t>(pieces) * sizeof(cuda::Piece);
  const size_t entries_bytes = static_cast<size_t>(blocks) * sizeof(cuda::Entry);
  KVANT_ASSIGN(
      cuda::Memory memory,
      device.Allocate(cuda::MemoryKind::kDevice, positions_bytes + pieces_bytes + entries_bytes));
  std::vector<std::byte> bytes(memory.bytes());
  auto* positions = reinterpret_cast<int32_t*>(bytes.data());
  auto* piece = reinterpret_cast<cuda::Piece*>(bytes.data() + positions_bytes);
  auto* entry = reinterpret_cast<cuda::Entry*>(bytes.data() + positions_bytes + pieces_bytes);
  for (int64_t row = 0; row < p.rows; ++row) {
    positions[row] = static_cast<int32_t>(p.depth + (p.rows > kFewRows ? row : 0));
  }
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t first = i * 32;
    const int64_t rows = std::min<int64_t>(32, p.rows - first);
    piece[i] = {static_cast<int32_t>(first),
                static_cast<int32_t>(rows),
                0,
                static_cast<int32_t>(blocks),
                0,
                0,
                0,
                positions[first + rows - 1] + 1};
  }
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t position = i * cuda::kBlockPositions;
    entry[i] = {static_cast<int32_t>(i), static_cast<int32_t>(position),
                static_cast<int32_t>(std::min<int64_t>(cuda::kBlockPositions, end - position)),
                ~0u};
  }
  KVANT_TRY(device.Upload(cuda::Stream::kWork, memory.address(), bytes.data(), bytes.size()));
  KVANT_TRY(device.Wait(cuda::Stream::kWork));
  *tables = {memory.pointer<const int32_t>(0), nullptr,
             memory.pointer<const cuda::Piece>(positions_bytes), nullptr,
             memory.pointer<const cuda::Entry>(positions_bytes + pieces_bytes)};
  return memory;
}

// The median time of an attention, in seconds.
Result<double> TimeOf(cuda::Device& device, const cuda::AttentionParams& params,
                      const cuda::Grid& grid, int repetitions) {
  std::vector<double> seconds;
  for (int i = -2; i < repetitions; ++i) {
    // Several in a row, so that a launch costs nothing beside them.
    constexpr int kRow = 10;
    KVANT_TRY(device.Wait(cuda::Stream::kWork));
    const auto begin = std::chrono::steady_clock::now();
    for (int n = 0; n < kRow; ++n) KVANT_TRY(device.Attend(params, grid));
    KVANT_TRY(device.Wait(cuda::Stream::kWork));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i >= 0) seconds.push_back(time.count() / kRow);
  }
  std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

Status Run(const Problem& p) {
  KVANT_ASSIGN(const std::shared_ptr<cuda::Device> device, cuda::Device::Open());
  kv::GroupShape shape;
  shape.kv_heads = static_cast<int>(p.kv_heads);
  shape.k_dim = shape.v_dim = static_cast<int>(p.dim);
  shape.k_type = shape.v_type = p.q8 ? cpu::KvElement::kQ8 : cpu::KvElement::kF16;
  shape.layers = {0};
  cuda::AttentionParams params{};
  params.blocks = kv::DeviceStore::Describe(shape, 0);
  KVANT_TRY(device->CanAttend(params.blocks));
  const int64_t end = p.depth + p.rows;
  const int64_t blocks = (end + cuda::kBlockPositions - 1) / cuda::kBlockPositions;
  KVANT_ASSIGN(const cuda::Memory cache,
               device->Allocate(cuda::MemoryKind::kDevice,
                                params.blocks.block_bytes * static_cast<size_t>(blocks)));
  // Small halves, codes of 17 and scales that are small floats: what they are changes no time.
  KVANT_TRY(device->Fill(cuda::Stream::kWork, cache.address(), std::byte{0x11}, cache.bytes()));
  params.blocks.memory = cache.pointer();
  const int64_t pieces = (p.rows + 31) / 32;
  KVANT_ASSIGN(const cuda::Memory tables, MakeTables(*device, p, pieces, &params.tables));
  const int64_t heads = p.kv_heads * p.heads_per_kv;
  const size_t row_bytes = static_cast<size_t>(heads * p.dim) * sizeof(float);
  KVANT_ASSIGN(const cuda::Memory input, device->Allocate(cuda::MemoryKind::kDevice,
                                                          row_bytes * static_cast<size_t>(p.rows)));
  KVANT_ASSIGN(
      const cuda::Memory output,
      device->Allocate(cuda::MemoryKind::kDevice, row_bytes * static_cast<size_t>(p.rows)));
  KVANT_TRY(device->Fill(cuda::Stream::kWork, input.address(), std::byte{0x3c}, input.bytes()));
  const bool few = p.rows <= kFewRows;
  const int64_t spans = few ? end / cuda::kSpanPositions + 1 : 1;
  KVANT_ASSIGN(
      const cuda::Memory partials,
      device->Allocate(cuda::MemoryKind::kDevice,
                       static_cast<size_t>(p.rows * heads * spans * (cuda::kPartialHead + p.dim)) *
                           sizeof(float)));
  params.input = input.pointer<const float>();
  params.output = output.pointer<float>();
  params.partials = few ? partials.pointer<float>() : nullptr;
  params.input_stride = params.output_stride = heads * p.dim;
  params.heads_per_kv = static_cast<int32_t>(p.heads_per_kv);
  const int64_t piece_rows = std::min<int64_t>(32, p.rows);
  params.query_tiles = static_cast<int32_t>((piece_rows * p.heads_per_kv + cuda::kTileQueries - 1) /
                                            cuda::kTileQueries);
  params.spans = static_cast<int32_t>(spans);
  params.scale = 0.1f;
  const cuda::Grid grid = {pieces * params.query_tiles, p.kv_heads, spans};
  KVANT_ASSIGN(const double median, TimeOf(*device, params, grid, p.repetitions));
  const double bytes = static_cast<double>(params.blocks.block_bytes) * static_cast<double>(blocks);
  const double seen = few ? static_cast<double>(p.depth + 1)
                          : static_cast<double>(p.depth) + static_cast<double>(p.rows + 1) / 2;
  const double macs = 2 * static_cast<double>(p.rows * heads * p.dim) * seen;
  fmt::print(
      "{{\"device\": \"{}\", \"depth\": {}, \"rows\": {}, \"kv_heads\": {}, \"heads\": {}, "
      "\"dim\": {}, "
      "\"type\": \"{}\", \"microseconds\": {:.2f}, \"gigabytes_per_second\": {:.1f}, "
      "\"teraflops\": {:.2f}}}\n",
      device->facts().name, p.depth, p.rows, p.kv_heads, heads, p.dim, p.q8 ? "q8" : "f16",
      median * 1e6, bytes / median * 1e-9, 2 * macs / median * 1e-12);
  return {};
}

}  // namespace
}  // namespace kvant

int main(int argc, char** argv) {
  if (argc < 7 || argc > 8 ||
      (std::strcmp(argv[6], "f16") != 0 && std::strcmp(argv[6], "q8") != 0)) {
    fmt::print(
        stderr,
        "usage: device_attention DEPTH ROWS KV_HEADS HEADS_PER_KV DIM f16|q8 [REPETITIONS]\n");
    return 2;
  }
  kvant::Problem problem{kvant::Number(argv[1]),
                         kvant::Number(argv[2]),
                         kvant::Number(argv[3]),
                         kvant::Number(argv[4]),
                         kvant::Number(argv[5]),
                         std::strcmp(argv[6], "q8") == 0,
                         argc == 8 ? static_cast<int>(kvant::Number(argv[7])) : 20};
  if (problem.depth < 0 || problem.rows < 1 || problem.kv_heads < 1 || problem.heads_per_kv < 1 ||
      problem.repetitions < 1) {
    fmt::print(stderr, "device_attention: expected positive numbers\n");
    return 2;
  }
  const kvant::Status status = kvant::Run(problem);
  if (status.ok()) return 0;
  fmt::print(stderr, "device_attention: {}\n", status.error().message);
  return 1;
}
