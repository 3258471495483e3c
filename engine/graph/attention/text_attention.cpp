#include "engine/graph/attention/text_attention.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>

#include "base/aligned_buffer.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "cpu/kv_kernels.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/cut.h"

namespace kvant::graph {
namespace {

// Rows that attend at once to what a thread has laid out of a text.
constexpr int64_t kTaskRows = 256;
constexpr int64_t kLineFloats = 16;  // of a cache line

int64_t PaddedRows(int64_t rows) {
  return static_cast<int64_t>(
      RoundUp(static_cast<size_t>(rows), static_cast<size_t>(cpu::kKeyTileTokens)));
}

// The memory that a task needs, in the order in which it lies in the scratch.
struct TextScratch {
  size_t keys;  // bytes of each
  size_t values;
  size_t positions;  // of what rows see up to, then of the rows
  size_t kernel;

  TextScratch(const AttentionParts& parts, int64_t text_rows) {
    const AttentionShape& shape = parts.shape;
    const auto rows = static_cast<size_t>(PaddedRows(text_rows));
    keys = RoundUp(rows * static_cast<size_t>(shape.k_dim) * sizeof(float), 64);
    values = RoundUp(rows * static_cast<size_t>(shape.v_dim) * sizeof(float), 64);
    positions = kTaskRows * sizeof(int64_t);
    kernel = parts.kernels.attention_scratch_bytes(
        kTaskRows, static_cast<int>(parts.heads_per_kv), static_cast<int>(shape.k_dim),
        static_cast<int>(shape.v_dim), cpu::KeyForm::kStored);
  }

  size_t bytes() const { return keys + values + 2 * positions + kernel; }
};

class TextAttention {
 public:
  TextAttention(const AttentionParts& parts, const PassContext& pass, std::span<std::byte> scratch)
      : parts_(parts), shape_(parts.shape), pass_(pass), scratch_(scratch) {}

  // Attends from some rows of a text, for one kv head.
  void Run(const TextRows& text, const Range& rows, int64_t kv_head) {
    LayOut(text, kv_head);
    const int64_t count = rows.end - rows.begin;
    const int64_t first_row = text.first_row + rows.begin;
    const TextScratch sizes(parts_, text.rows);
    auto* last = reinterpret_cast<int64_t*>(scratch_.data() + sizes.keys + sizes.values);
    int64_t* own = last + kTaskRows;
    std::iota(own, own + count, rows.begin);
    const cpu::KvRun run = {.keys = scratch_.data(),
                            .values = scratch_.data() + sizes.keys,
                            .first_position = 0,
                            .count = text.rows};
    cpu::AttentionTask task = TaskOf(first_row, kv_head);
    task.rows = count;
    task.positions = own;
    task.runs = {&run, 1};
    task.scratch = scratch_.subspan(sizes.keys + sizes.values + 2 * sizes.positions);
    if (shape_.sees_all) {
      // A window of both sides is one that ends behind the row.
      const int64_t half = shape_.window / 2;
      for (int64_t i = 0; i < count; ++i) {
        last[i] = shape_.window == 0 ? text.rows - 1 : own[i] + half;
      }
      task.positions = last;
      task.origins = own;
      task.window = shape_.window == 0 ? 0 : 2 * half + 1;
      task.window_kind = cpu::WindowKind::kSliding;
    }
    cpu::KernelsFor(parts_.kernels, task.k_type, task.v_type).attention(task);
    parts_.Finish(pass_, first_row, count, kv_head);
  }

 private:
  cpu::AttentionTask TaskOf(int64_t first_row, int64_t kv_head) const {
    cpu::AttentionTask task;
    task.queries = pass_.FloatRow(parts_.in.queries, first_row) +
                   kv_head * parts_.heads_per_kv * shape_.query_dim();
    task.query_row_stride = pass_.RowFloats(parts_.in.queries);
    task.out =
        pass_.FloatRow(parts_.out.floats, first_row) + kv_head * parts_.heads_per_kv * shape_.v_dim;
    task.out_row_stride = pass_.RowFloats(parts_.out.floats);
    task.heads_per_kv = static_cast<int>(parts_.heads_per_kv);
    task.k_dim = static_cast<int>(shape_.k_dim);
    task.v_dim = static_cast<int>(shape_.v_dim);
    task.k_type = task.v_type = KvType::kF32;
    task.scale = parts_.scale;
    task.window = shape_.window;
    task.window_kind = shape_.window_kind;
    task.score_cap = shape_.score_cap;
    task.bias_slopes = parts_.OfHeads(shape_.bias_slopes, kv_head);
    task.sinks = parts_.OfHeads(shape_.sinks, kv_head);
    task.distance_bias = parts_.DistancesOf(kv_head);
    if (!shape_.as_few) task.count = pass_.TokenCount(parts_.in.queries);
    return task;
  }

  // Lays the keys and values of a text and a head out, unless the scratch holds them already.
  void LayOut(const TextRows& text, int64_t kv_head) {
    if (laid_out_ == text.first_row && laid_out_head_ == kv_head) return;
    laid_out_ = text.first_row;
    laid_out_head_ = kv_head;
    const int64_t k_dim = shape_.k_dim;
    const int64_t v_dim = shape_.v_dim;
    auto* keys = reinterpret_cast<float*>(scratch_.data());
    auto* values = reinterpret_cast<float*>(scratch_.data() + TextScratch(parts_, text.rows).keys);
    const int64_t stride = pass_.RowFloats(parts_.in.kv);
    for (int64_t first = 0; first < text.rows; first += cpu::kKeyTileTokens) {
      const int64_t count = std::min<int64_t>(cpu::kKeyTileTokens, text.rows - first);
      const float* kv = pass_.FloatRow(parts_.in.kv, text.first_row + first);
      parts_.kernels.lay_out_keys(kv + parts_.in.key_column + kv_head * k_dim, stride, count, k_dim,
                                  keys + first * k_dim);
      for (int64_t i = 0; i < count; ++i, kv += stride) {
        Prefetch(kv + cpu::kKeyTileTokens * stride, kv_head);
        std::copy_n(kv + parts_.in.value_column + kv_head * v_dim, v_dim,
                    values + (first + i) * v_dim);
      }
    }
  }

  // Asks for a row's key, value and queries of a head: rows lie too far apart for a prefetcher of
  // the CPU.
  void Prefetch(const float* row, int64_t kv_head) const {
    const auto ask = [row](int64_t column, int64_t floats) {
      for (int64_t i = 0; i < floats; i += kLineFloats) __builtin_prefetch(row + column + i);
    };
    ask(parts_.in.key_column + kv_head * shape_.k_dim, shape_.k_dim);
    ask(parts_.in.value_column + kv_head * shape_.v_dim, shape_.v_dim);
    if (parts_.in.queries != parts_.in.kv) return;
    const int64_t floats = parts_.heads_per_kv * shape_.query_dim();
    ask(kv_head * floats, floats);
  }

  const AttentionParts& parts_;
  const AttentionShape& shape_;
  const PassContext& pass_;
  std::span<std::byte> scratch_;
  int64_t laid_out_ = -1;  // the first row of a text
  int64_t laid_out_head_ = -1;
};

}  // namespace

// The pieces of work are texts; their tiles are a head and kTaskRows rows each, head by head.
void AttendTexts(const AttentionParts& parts, const PassContext& pass,
                 const ThreadPool::Member& member) {
  TextAttention attention(parts, pass, pass.Scratch(member));
  const auto text_of = [&](int64_t i) -> const TextRows& {
    return pass.texts[static_cast<size_t>(i)];
  };
  const auto row_tiles = [&](int64_t i) { return (text_of(i).rows + kTaskRows - 1) / kTaskRows; };
  const auto tiles = [&](int64_t i) { return row_tiles(i) * parts.shape.kv_heads; };
  const auto cost = [&](int64_t i) {
    const int64_t rows = text_of(i).rows;
    return std::min(rows, kTaskRows) * (rows + parts.shape.k_dim);
  };
  ForWeightedShare(
      std::ssize(pass.texts), tiles, cost, ShareOf(member), [&](int64_t i, const Range& range) {
        for (int64_t tile = range.begin; tile < range.end; ++tile) {
          const int64_t first = tile % row_tiles(i) * kTaskRows;
          attention.Run(text_of(i), {first, std::min(first + kTaskRows, text_of(i).rows)},
                        tile / row_tiles(i));
        }
      });
}

size_t TextScratchBytes(const AttentionParts& parts, const PassLimits& limits) {
  return TextScratch(parts, limits.context).bytes();
}

}  // namespace kvant::graph
