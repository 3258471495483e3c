// Times the attention kernels of a CUDA device alone, on random keys and values:
//
//     device_attention DEPTH ROWS KV_HEADS HEADS_PER_KV DIM f16|q8 [REPETITIONS]
//
// DIM is that of keys and of values, or LATENT+ROPE: latent attention in its absorbed form, of one
// kv head.
//
// Each row is a query behind DEPTH positions; up to 63 rows share all of them, as beams do, more
// are a prompt's chunk behind them. The layers of a cache that is larger than the device's own
// caches are attended to one after the other, as in a model. Prints one line of JSON: the median
// time of an attention, of few rows without and with its merge, the bytes of keys and values that
// it has to read, and its multiply-accumulates.
#include <algorithm>
#include <chrono>
#include <cmath>
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
  int64_t depth, rows, kv_heads, heads_per_kv, v_dim, k_dim;
  bool latent;
  bool q8;
  int repetitions;

  int64_t heads() const { return kv_heads * heads_per_kv; }
  int64_t query_dim() const { return k_dim + (latent ? v_dim : 0); }
  cuda::LayerBlocks BlocksOf(const kv::GroupShape& shape, int64_t layer) const {
    cuda::LayerBlocks blocks = kv::DeviceStore::Describe(shape, static_cast<size_t>(layer));
    blocks.key_form = latent ? cuda::KeyForm::kValueFirst : cuda::KeyForm::kStored;
    return blocks;
  }
};

int64_t Number(const char* text) { return std::strtoll(text, nullptr, 10); }

// The tables of the pass, in memory that the device reads.
Result<cuda::Memory> MakeTables(cuda::Device& device, const Problem& p, cuda::PassTables* tables) {
  const int64_t end = p.depth + (p.rows > kFewRows ? p.rows : 1);
  const int64_t blocks = (end + cuda::kBlockPositions - 1) / cuda::kBlockPositions;
  const int64_t spans = (end + cuda::kSpanPositions - 1) / cuda::kSpanPositions;
  const size_t pieces_at = RoundUp(static_cast<size_t>(p.rows) * sizeof(int32_t), 16);
  const size_t spans_at = pieces_at + RoundUp(sizeof(cuda::Piece), 16);
  const size_t entries_at =
      spans_at + RoundUp(static_cast<size_t>(spans + 1) * sizeof(int32_t), 16);
  KVANT_ASSIGN(cuda::Memory memory,
               device.Allocate(cuda::MemoryKind::kDevice,
                               entries_at + static_cast<size_t>(blocks) * sizeof(cuda::Entry)));
  std::vector<std::byte> bytes(memory.bytes());
  auto* positions = reinterpret_cast<int32_t*>(bytes.data());
  auto* piece = reinterpret_cast<cuda::Piece*>(bytes.data() + pieces_at);
  auto* span = reinterpret_cast<int32_t*>(bytes.data() + spans_at);
  auto* entry = reinterpret_cast<cuda::Entry*>(bytes.data() + entries_at);
  for (int64_t row = 0; row < p.rows; ++row) {
    positions[row] = static_cast<int32_t>(p.depth + (p.rows > kFewRows ? row : 0));
  }
  piece[0] = {.first_row = 0,
              .rows = static_cast<int32_t>(p.rows),
              .entries_begin = 0,
              .entries_end = static_cast<int32_t>(blocks),
              .hidden_begin = 0,
              .hidden_end = 0,
              .begin = 0,
              .end = static_cast<int32_t>(end),
              .all_begin = 0,
              .all_end = static_cast<int32_t>(p.depth + 1),
              .spans_at = 0};
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t position = i * cuda::kBlockPositions;
    entry[i] = {static_cast<int32_t>(i), static_cast<int32_t>(position),
                static_cast<int32_t>(std::min<int64_t>(cuda::kBlockPositions, end - position)),
                ~0u};
  }
  constexpr int64_t kSpanBlocks = cuda::kSpanPositions / cuda::kBlockPositions;
  for (int64_t i = 0; i <= spans; ++i) {
    span[i] = static_cast<int32_t>(std::min(i * kSpanBlocks, blocks));
  }
  KVANT_TRY(device.Upload(cuda::Stream::kWork, memory.address(), bytes.data(), bytes.size()));
  KVANT_TRY(device.Wait(cuda::Stream::kWork));
  *tables = {memory.pointer<const int32_t>(0),
             nullptr,
             memory.pointer<const cuda::Piece>(pieces_at),
             nullptr,
             memory.pointer<const cuda::Entry>(entries_at),
             memory.pointer<const int32_t>(spans_at)};
  return memory;
}

// The median time of what `launch`(layer) starts, in seconds, one layer after the other.
template <class Launch>
Result<double> TimeOf(cuda::Device& device, int64_t layers, int repetitions, const Launch& launch) {
  // Several in a row, so that a launch costs nothing beside them.
  const int64_t in_row = std::max<int64_t>(layers, 10);
  std::vector<double> seconds;
  for (int i = -2; i < repetitions; ++i) {
    KVANT_TRY(device.Wait(cuda::Stream::kWork));
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t n = 0; n < in_row; ++n) KVANT_TRY(launch(n % layers));
    KVANT_TRY(device.Wait(cuda::Stream::kWork));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i >= 0) seconds.push_back(time.count() / static_cast<double>(in_row));
  }
  std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

// Numbers around zero: halves below 2, codes, and scales that are small floats.
Status FillCache(cuda::Device& device, const cuda::Memory& cache, bool q8) {
  std::vector<uint16_t> random(1 << 20);
  uint32_t state = 1;
  for (uint16_t& bits : random) {
    state = state * 1664525 + 1013904223;
    bits = static_cast<uint16_t>(q8 ? (state >> 16 & 0x3f7f) | 0x2000 : state >> 16 & 0xbbff);
  }
  const size_t bytes = random.size() * sizeof(uint16_t);
  for (size_t done = 0; done < cache.bytes(); done += bytes) {
    KVANT_TRY(device.Upload(cuda::Stream::kWork, cache.address() + done, random.data(),
                            std::min(bytes, cache.bytes() - done)));
  }
  return device.Wait(cuda::Stream::kWork);
}

// So many layers that their keys and values do not stay in the device's caches.
constexpr double kCacheBytes = 256e6;

// Seconds of an attention without its merge and with it.
struct Seconds {
  double alone;
  double merged;
};

// Measures attention over the layers of a cache, one after the other; `params` has the tables.
Result<Seconds> Measure(cuda::Device& device, const Problem& p, const kv::GroupShape& shape,
                        const cuda::Memory& cache, cuda::AttentionParams params) {
  const bool few = p.rows <= kFewRows;
  const int64_t end = p.depth + (few ? 1 : p.rows);
  const int64_t heads = p.heads();
  const auto rows_of = [&](int64_t dim) {
    return device.Allocate(cuda::MemoryKind::kDevice,
                           static_cast<size_t>(p.rows * heads * dim) * sizeof(float));
  };
  KVANT_ASSIGN(const cuda::Memory input, rows_of(p.query_dim()));
  KVANT_ASSIGN(const cuda::Memory output, rows_of(p.v_dim));
  KVANT_TRY(device.Fill(cuda::Stream::kWork, input.address(), std::byte{0x3c}, input.bytes()));
  const int64_t spans = few ? (end - 1) / cuda::kSpanPositions + 1 : 1;
  KVANT_ASSIGN(
      const cuda::Memory partials,
      device.Allocate(cuda::MemoryKind::kDevice,
                      static_cast<size_t>(p.rows * heads * spans * (cuda::kPartialHead + p.v_dim)) *
                          sizeof(float)));
  params.input = input.pointer<const float>();
  params.output = output.pointer<float>();
  params.partials = few ? partials.pointer<float>() : nullptr;
  params.input_stride = heads * p.query_dim();
  params.output_stride = heads * p.v_dim;
  params.heads_per_kv = static_cast<int32_t>(p.heads_per_kv);
  const int64_t queries = p.rows * p.heads_per_kv;
  const cuda::AttentionPlan plan =
      device.PlanOf(params.blocks, queries,
                    few ? cuda::Device::Rows::kFew : cuda::Device::Rows::kManyOfOneSequence);
  params.query_tiles =
      static_cast<int32_t>((queries + plan.block_queries - 1) / plan.block_queries);
  params.spans = static_cast<int32_t>(spans);
  params.scale = 0.1f;
  const auto attend = [&](int64_t layer) {
    params.blocks = p.BlocksOf(shape, layer);
    params.blocks.memory = cache.pointer();
    return device.Attend(params, plan, {params.query_tiles, p.kv_heads, spans});
  };
  const auto merge = [&] {
    return device.Merge({.tables = params.tables,
                         .partials = params.partials,
                         .output = params.output,
                         .output_stride = params.output_stride,
                         .sinks = nullptr,
                         .pieces = 1,
                         .spans = params.spans,
                         .v_dim = static_cast<int32_t>(p.v_dim),
                         .window = 0,
                         .window_kind = cuda::Window::kSliding},
                        {p.rows, heads, (p.v_dim + cuda::kMergedDims - 1) / cuda::kMergedDims});
  };
  KVANT_ASSIGN(const double alone, TimeOf(device, std::ssize(shape.layers), p.repetitions, attend));
  double merged = alone;
  if (few) {
    KVANT_ASSIGN(merged, TimeOf(device, std::ssize(shape.layers), p.repetitions,
                                [&](int64_t layer) -> Status {
                                  KVANT_TRY(attend(layer));
                                  return merge();
                                }));
  }
  return Seconds{alone, merged};
}

Status Run(const Problem& p) {
  KVANT_ASSIGN(const std::shared_ptr<cuda::Device> device, cuda::Device::Open());
  kv::GroupShape shape;
  shape.kv_heads = static_cast<int>(p.kv_heads);
  shape.k_dim = static_cast<int>(p.k_dim);
  shape.v_dim = static_cast<int>(p.v_dim);
  shape.k_type = shape.v_type = p.q8 ? KvType::kQ8 : KvType::kF16;
  shape.layers = {0};
  const bool few = p.rows <= kFewRows;
  const int64_t end = p.depth + (few ? 1 : p.rows);
  const int64_t blocks = (end + cuda::kBlockPositions - 1) / cuda::kBlockPositions;
  const double bytes = static_cast<double>(shape.block_bytes()) * static_cast<double>(blocks);
  const int64_t layers =
      few ? std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kCacheBytes / bytes))) : 1;
  for (int64_t layer = 1; layer < layers; ++layer) shape.layers.push_back(static_cast<int>(layer));
  cuda::AttentionParams params{};
  params.blocks = p.BlocksOf(shape, 0);
  KVANT_TRY(device->CanAttend(params.blocks));
  KVANT_ASSIGN(const cuda::Memory cache,
               device->Allocate(cuda::MemoryKind::kDevice,
                                params.blocks.block_bytes * static_cast<size_t>(blocks)));
  KVANT_TRY(FillCache(*device, cache, p.q8));
  KVANT_ASSIGN(const cuda::Memory tables, MakeTables(*device, p, &params.tables));
  KVANT_ASSIGN(const Seconds seconds, Measure(*device, p, shape, cache, params));
  const double seen = few ? static_cast<double>(p.depth + 1)
                          : static_cast<double>(p.depth) + static_cast<double>(p.rows + 1) / 2;
  const double macs = static_cast<double>(p.rows * p.heads() * (p.query_dim() + p.v_dim)) * seen;
  fmt::print(
      "{{\"device\": \"{}\", \"depth\": {}, \"rows\": {}, \"kv_heads\": {}, \"heads\": {}, "
      "\"k_dim\": {}, \"v_dim\": {}, \"type\": \"{}\", \"layers\": {}, \"microseconds\": {:.2f}, "
      "\"microseconds_merged\": {:.2f}, \"gigabytes_per_second\": {:.1f}, "
      "\"gigabytes_per_second_merged\": {:.1f}, \"teraflops\": {:.2f}}}\n",
      device->facts().name, p.depth, p.rows, p.kv_heads, p.heads(), p.query_dim(), p.v_dim,
      p.q8 ? "q8" : "f16", layers, seconds.alone * 1e6, seconds.merged * 1e6,
      bytes / seconds.alone * 1e-9, bytes / seconds.merged * 1e-9,
      2 * macs / seconds.alone * 1e-12);
  return {};
}

}  // namespace
}  // namespace kvant

int main(int argc, char** argv) {
  if (argc < 7 || argc > 8 ||
      (std::strcmp(argv[6], "f16") != 0 && std::strcmp(argv[6], "q8") != 0)) {
    fmt::print(stderr,
               "usage: device_attention DEPTH ROWS KV_HEADS HEADS_PER_KV DIM|LATENT+ROPE f16|q8 "
               "[REPETITIONS]\n");
    return 2;
  }
  const char* rope = std::strchr(argv[5], '+');
  kvant::Problem problem{kvant::Number(argv[1]),
                         kvant::Number(argv[2]),
                         kvant::Number(argv[3]),
                         kvant::Number(argv[4]),
                         kvant::Number(argv[5]),
                         kvant::Number(rope == nullptr ? argv[5] : rope + 1),
                         rope != nullptr,
                         std::strcmp(argv[6], "q8") == 0,
                         argc == 8 ? static_cast<int>(kvant::Number(argv[7])) : 20};
  if (problem.depth < 0 || problem.rows < 1 || problem.kv_heads < 1 || problem.heads_per_kv < 1 ||
      problem.v_dim < 1 || problem.k_dim < 1 || problem.repetitions < 1) {
    fmt::print(stderr, "device_attention: expected positive numbers\n");
    return 2;
  }
  if (problem.latent && problem.kv_heads != 1) {
    fmt::print(stderr, "device_attention: expected one kv head with latents, found {}\n",
               problem.kv_heads);
    return 2;
  }
  const kvant::Status status = kvant::Run(problem);
  if (status.ok()) return 0;
  fmt::print(stderr, "device_attention: {}\n", status.error().message);
  return 1;
}
