// How the problems of attention_case.h are attended to: on the host in all ways of cutting the work
// that a device may choose, or on a device.
#pragma once

#include "cuda/kernels/hopper.h"
#include "cuda/kernels/latent_rows.h"
#include "cuda/kernels/span_rows.h"
#include "tests/cuda/attention_case.h"

namespace kvant::cuda {

// The pass of these parts, in pieces of at most 32 rows, or one of many rows.
inline Case::Tables Case::TablesOf(const std::vector<size_t>& parts, int first_row) const {
  Tables tables;
  for (const size_t number : parts) {
    const Part& part = parts_[number];
    for (int i = first_row; i < part.rows; ++i) {
      tables.positions.push_back(part.length + i);
      tables.blocks.push_back(-1);
    }
  }
  const int rows = static_cast<int>(tables.positions.size());
  const int most = many_ ? rows : 32;
  for (int first = 0; first < rows; first += most) {
    Piece piece{};
    piece.first_row = first;
    piece.rows = std::min(most, rows - first);
    piece.begin = piece.all_end = INT32_MAX;
    for (int row = first; row < first + piece.rows; ++row) {
      const int position = tables.positions[static_cast<size_t>(row)];
      piece.begin = std::min(piece.begin, First(position));
      piece.end = std::max(piece.end, position + 1);
      piece.all_begin = std::max(piece.all_begin, First(position));
      piece.all_end = std::min(piece.all_end, position + 1);
    }
    piece.entries_begin = static_cast<int>(tables.entries.size());
    piece.hidden_begin = static_cast<int>(tables.hidden.size());
    int bit = 0;
    for (const size_t number : parts) {
      const Part& part = parts_[number];
      const uint32_t bits = parts.size() == 1 ? ~0u : ((1u << part.rows) - 1) << bit;
      bit += part.rows;
      for (size_t i = 0; i < part.blocks.size(); ++i) {
        const int position = static_cast<int>(i) * kBlockPositions;
        if (position + kBlockPositions <= piece.begin) continue;
        const auto& [hidden_begin, hidden_end] = hidden_of_part_[number];
        if (position >= hidden_begin && position + kBlockPositions <= hidden_end) continue;
        const int count = std::min(kBlockPositions, part.length + part.rows - position);
        const auto same =
            std::find_if(tables.entries.begin() + piece.entries_begin, tables.entries.end(),
                         [&](const Entry& entry) { return entry.block == part.blocks[i]; });
        if (same != tables.entries.end()) {
          same->rows |= bits;
        } else {
          tables.entries.push_back({part.blocks[i], position, count, bits});
        }
      }
      const auto& [begin, end] = hidden_of_part_[number];
      if (begin < end) tables.hidden.push_back({begin, end, bits});
    }
    std::stable_sort(tables.entries.begin() + piece.entries_begin, tables.entries.end(),
                     [](const Entry& a, const Entry& b) { return a.position < b.position; });
    piece.entries_end = static_cast<int>(tables.entries.size());
    piece.hidden_end = static_cast<int>(tables.hidden.size());
    piece.spans_at = static_cast<int>(tables.span_entries.size());
    int entry = piece.entries_begin;
    for (int span = piece.begin / kSpanPositions; span <= (piece.end - 1) / kSpanPositions;
         ++span) {
      while (entry < piece.entries_end &&
             tables.entries[static_cast<size_t>(entry)].position < span * kSpanPositions) {
        ++entry;
      }
      tables.span_entries.push_back(entry);
    }
    tables.span_entries.push_back(piece.entries_end);
    tables.pieces.push_back(piece);
  }
  tables.pieces.push_back({});  // a grid may be larger than the pass
  return tables;
}

template <class Block, class Kernel>
void Case::RunKernel(const AttentionParams& params, int shared_bytes, int blocks) const {
  Bytes shared(static_cast<size_t>(shared_bytes));
  Block block;
  block.shared = shared.data();
  for (block.z = 0; block.z < (many_ ? 1 : params.spans); ++block.z) {
    for (block.y = 0; block.y < shape_.kv_heads; ++block.y) {
      for (block.x = 0; block.x < blocks; ++block.x) {
        shared.Spoil();
        if constexpr (std::is_same_v<Block, HostBlock>) {
          RunThreadBlock(block, kSpanThreads, order_, [&](auto& of) { Kernel::Run(of, params); });
        } else {
          Kernel::Run(block, params);
        }
      }
    }
  }
}

inline void Case::RunTiles(AttentionParams params, int pieces, int piece_rows,
                           std::vector<float>& results) const {
  std::vector<float> before;
  const auto compare = [&] {
    const size_t bytes = results.size() * sizeof(float);
    if (!before.empty()) {
      EXPECT_EQ(std::memcmp(before.data(), results.data(), bytes), 0);
    }
    before = results;
  };
  const auto tiles = [&](int queries) {
    params.query_tiles = (piece_rows * shape_.heads_per_kv + queries - 1) / queries;
    return pieces * params.query_tiles;
  };
  const auto run = [&]<int kDims>() {
    if (many_) {
      const int blocks = tiles(HopperLayout<kDims>::kQueries);
      const int bytes = HopperLayout<kDims>::kBytes;
      RunKernel<HopperBlock, HopperRows<kDims, true>>(params, bytes, blocks);
      compare();
      if (blocks_.k_type == Element::kF16 && blocks_.v_type == Element::kF16) {
        RunKernel<HopperBlock, HopperRows<kDims, false>>(params, bytes, blocks);
        compare();
      }
    }
    for (params.round = 1; params.round <= kRoundMost; params.round += 7) {
      const auto bytes = [&](int count) {
        return SpanLayoutOf(blocks_, count, params.round).bytes;
      };
      if (!many_) {
        const int blocks = tiles(kWarpQueries);
        RunKernel<HostBlock, SpanRows<kDims, 1>>(params, bytes(1), blocks);
        compare();
      }
      const int blocks = tiles(4 * kWarpQueries);
      RunKernel<HostBlock, SpanRows<kDims, 4>>(params, bytes(4), blocks);
      compare();
    }
  };
  const int dims = std::max(shape_.k_dim, shape_.v_dim);
  if (shape_.key_form == KeyForm::kValueFirst) {
    for (params.round = 1; params.round <= kLatentStages; ++params.round) {
      const int blocks = tiles(kWarpQueries);
      RunKernel<HostBlock, LatentRows>(params, LatentLayoutOf(blocks_, params.round).bytes, blocks);
      compare();
    }
  } else if (dims <= 64) {
    run.template operator()<64>();
  } else if (dims <= 128) {
    run.template operator()<128>();
  } else {
    run.template operator()<256>();
  }
}

inline MergeParams Case::MergeOf(const AttentionParams& params, int pieces) const {
  MergeParams merge{};
  merge.tables = params.tables;
  merge.partials = params.partials;
  merge.output = params.output;
  merge.output_stride = params.output_stride;
  merge.sinks = params.sinks;
  merge.pieces = pieces;
  merge.spans = params.spans;
  merge.v_dim = shape_.v_dim;
  merge.window = shape_.window;
  merge.window_kind = shape_.window_kind;
  return merge;
}

inline void Case::Merge(const AttentionParams& params, int pieces, int rows) const {
  const MergeParams merge = MergeOf(params, pieces);
  Bytes shared(kMergeSharedBytes);
  HostBlock block;
  block.shared = shared.data();
  for (block.z = 0; block.z * kMergedDims < shape_.v_dim; ++block.z) {
    for (block.y = 0; block.y < heads(); ++block.y) {
      for (block.x = 0; block.x < rows; ++block.x) {
        shared.Spoil();
        RunThreadBlock(block, kMergeThreads, order_,
                       [&](auto& of) { MergeSpans(of, merge, heads()); });
      }
    }
  }
}

inline Status Case::RunOnDevice(Device& device, AttentionParams params, Tables& tables,
                                int piece_rows, const std::vector<float>& input, size_t partials,
                                std::vector<float>& out) const {
  std::vector<Memory> kept;
  const auto send = [&](const void* from, size_t bytes) -> Result<const std::byte*> {
    KVANT_ASSIGN(Memory memory, device.Allocate(MemoryKind::kDevice, bytes + 16));
    KVANT_TRY(device.Upload(Stream::kWork, memory.address(), from, bytes));
    kept.push_back(std::move(memory));
    return kept.back().pointer<const std::byte>();
  };
  const auto send_all = [&](const auto& values, auto& pointer) -> Status {
    using Pointer = std::remove_reference_t<decltype(pointer)>;
    KVANT_ASSIGN(const std::byte* place, send(values.data(), values.size() * sizeof(values[0])));
    pointer = reinterpret_cast<Pointer>(place);
    return {};
  };
  KVANT_ASSIGN(const std::byte* blocks, send(blocks_.memory, blocks_.block_bytes * kBlocks));
  params.blocks.memory = const_cast<std::byte*>(blocks);
  KVANT_TRY(send_all(tables.positions, params.tables.positions));
  KVANT_TRY(send_all(tables.blocks, params.tables.blocks));
  KVANT_TRY(send_all(tables.pieces, params.tables.pieces));
  KVANT_TRY(send_all(tables.hidden, params.tables.hidden));
  KVANT_TRY(send_all(tables.entries, params.tables.entries));
  KVANT_TRY(send_all(tables.span_entries, params.tables.span_entries));
  KVANT_TRY(send_all(input, params.input));
  if (params.slopes != nullptr) KVANT_TRY(send_all(slopes_, params.slopes));
  if (params.sinks != nullptr) KVANT_TRY(send_all(sinks_, params.sinks));
  if (params.distances != nullptr) KVANT_TRY(send_all(distances_, params.distances));
  const float* output = nullptr;
  KVANT_TRY(send_all(out, output));
  params.output = const_cast<float*>(output);
  if (!many_) {
    const float* place = nullptr;
    KVANT_TRY(send_all(std::vector<float>(partials, NAN), place));
    params.partials = const_cast<float*>(place);
  }
  const AttentionPlan plan =
      device.PlanOf(blocks_, static_cast<int64_t>(piece_rows) * shape_.heads_per_kv,
                    many_ ? Device::Rows::kManyOfOneSequence : Device::Rows::kFew);
  params.query_tiles =
      (piece_rows * shape_.heads_per_kv + plan.block_queries - 1) / plan.block_queries;
  const auto pieces = static_cast<int32_t>(tables.pieces.size());
  KVANT_TRY(device.Attend(params, plan,
                          {static_cast<int64_t>(pieces) * params.query_tiles, shape_.kv_heads,
                           many_ ? 1 : params.spans}));
  if (!many_) {
    KVANT_TRY(device.Merge(
        MergeOf(params, pieces),
        {std::ssize(tables.positions), heads(), (shape_.v_dim + kMergedDims - 1) / kMergedDims}));
  }
  KVANT_TRY(device.Download(Stream::kWork, out.data(), reinterpret_cast<Address>(params.output),
                            out.size() * sizeof(float)));
  return device.Wait(Stream::kWork);
}

inline std::vector<float> Case::ResultsFrom(int first) const {
  return Attend({0}, std::vector<float>(input_.begin() + first * stride_, input_.end()), first);
}

inline std::vector<float> Case::Attend(const std::vector<size_t>& parts,
                                       const std::vector<float>& input, int first_row) const {
  Tables tables = TablesOf(parts, first_row);
  const int rows = static_cast<int>(tables.positions.size());
  const int out_stride = heads() * shape_.v_dim + 16;
  std::vector<float> out(static_cast<size_t>(rows * out_stride), NAN);
  int spans = 1;
  int piece_rows = 0;
  for (const Piece& piece : tables.pieces) {
    if (piece.rows == 0) continue;
    piece_rows = std::max(piece_rows, piece.rows);
    spans = std::max(spans, (piece.end - 1) / kSpanPositions - piece.begin / kSpanPositions + 1);
  }
  ++spans;  // and deeper than the pieces
  AttentionParams params{};
  params.blocks = blocks_;
  params.tables = {tables.positions.data(), tables.blocks.data(),  tables.pieces.data(),
                   tables.hidden.data(),    tables.entries.data(), tables.span_entries.data()};
  params.input = input.data();
  params.output = out.data();
  params.input_stride = stride_;
  params.output_stride = out_stride;
  params.slopes = shape_.slopes ? slopes_.data() : nullptr;
  params.sinks = shape_.sinks ? sinks_.data() : nullptr;
  params.distances = shape_.distances ? distances_.data() : nullptr;
  params.distance_least = kLeast;
  params.distance_count = params.distance_stride = kDistances;
  params.heads_per_kv = shape_.heads_per_kv;
  params.spans = spans;
  params.scale = scale_;
  params.score_cap = shape_.cap ? 1.5f : 0.0f;
  params.window = shape_.window;
  params.window_kind = shape_.window_kind;
  std::vector<float> partials(
      static_cast<size_t>(rows * heads() * spans * (kPartialHead + shape_.v_dim)), NAN);
  if (!many_) params.partials = partials.data();
  if (device_ != nullptr) {
    const Status status =
        RunOnDevice(*device_, params, tables, piece_rows, input, partials.size(), out);
    EXPECT_TRUE(status.ok()) << status.error().message;
  } else {
    RunTiles(params, static_cast<int>(tables.pieces.size()), piece_rows, many_ ? out : partials);
    if (!many_) Merge(params, static_cast<int>(tables.pieces.size()), rows);
  }
  std::vector<float> results;
  for (int row = 0; row < rows; ++row) {
    const float* of = out.data() + row * out_stride;
    results.insert(results.end(), of, of + heads() * shape_.v_dim);
  }
  return results;
}

}  // namespace kvant::cuda
