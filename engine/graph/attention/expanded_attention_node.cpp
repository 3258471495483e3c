// Latent attention of passes in expanded form: the latents of all visible positions are multiplied
// with the matrices of a head, span by span, and the rows attend to the keys and values that come
// out, which live in a thread's scratch memory and nowhere else.
//
// A task is one head and a stretch of rows, which goes through the spans in order; where there are
// fewer heads than threads, rows are cut, too, and a head's keys are made as often. A row's bits
// depend on neither. Partial results of a span (cpu::AttentionSlice) merge into the rows' own as
// cpu kernels do it, but in plain code.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "cpu/activations.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/cut.h"
#include "engine/graph/matmul/head_matrices.h"
#include "engine/kv/pass_view.h"
#include "quant/format.h"
#include "quant/formats/f16.h"
#include "quant/formats/f32.h"

namespace kvant::graph {
namespace {

constexpr int64_t kSpan = cpu::kAttentionSpan;
constexpr auto kExpandedType = KvType::kF32;  // of expanded keys and values

// A thread's scratch memory, by arrays.
struct ExpandedScratch {
  std::span<cpu::KvRun> cached;    // runs of the cache
  std::span<cpu::KvRun> expanded;  // runs of a span
  float* latents;                  // [kSpan][latent]
  std::byte* records;              // [kSpan] of latents, where a matrix multiplies int8
  float* rotated;                  // [kSpan][rope], the keys' rotated parts
  float* keys;                     // [kSpan][head_dim]
  std::byte* key_tiles;
  float* values;    // [kSpan][v_dim]
  float* partials;  // [rows][AttentionPartialFloats]: of the span
  float* results;   // the same: of all spans so far
  std::span<std::byte> kernels;
};

class ExpandedAttentionNode final : public Node {
 public:
  ExpandedAttentionNode(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                        int cache_id, const LatentShape& shape, float scale,
                        const HeadMatrices& keys, const HeadMatrices& values,
                        const HeadColumns& queries, ValueId out)
      : Node(fmt::format("layer.{}.expanded_attention", cache_id), {queries.value}, {out}),
        kernels_(kernels),
        keys_(kernels, float_gemm, keys),
        values_(kernels, float_gemm, values),
        as_few_(float_gemm.as_few()),
        cache_id_(cache_id),
        shape_(shape),
        scale_(scale),
        queries_(queries),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (FormOf(shape_, pass) == LatentForm::kAbsorbed) return;
    const int64_t rows = pass.RowCount(out_);
    const int64_t parts = PartsOf(rows, member.count);
    ExpandedScratch scratch = Place(pass.limits, pass.Scratch(member).data());
    for (int64_t task = PlaceInTurn(ShareOf(member)); task < shape_.heads * parts;
         task += member.count) {
      const int64_t part = task / shape_.heads;
      RunTask(pass, task % shape_.heads, {rows * part / parts, rows * (part + 1) / parts}, scratch);
    }
  }

  // Passes of few tokens are absorbed, and there is nothing to do.
  Width WidthOf(const RowCounts& counts) const override {
    return counts.tokens(rows()) == cpu::TokenCount::kFew ? Width::kOne : Width::kTeam;
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    if (!limits.kv_cache || limits.chunk < cpu::kManyTokens) return 0;
    return SizeOf(limits);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    for (const PassShape::Part& part : pass.parts) {
      if (FormOf(shape_, pass, part) == LatentForm::kAbsorbed) continue;
      const auto rows = static_cast<double>(part.rows);
      const auto end = static_cast<double>(part.end);
      keys_.AddWork(shape_.heads, end, work);
      values_.AddWork(shape_.heads, end, work);
      work.float_macs += rows * (end - (rows - 1) / 2) *
                         static_cast<double>(shape_.heads * (shape_.head_dim() + shape_.v_dim));
    }
  }
  // Shares are measured by the positions that the rows of their tasks see, in a pass of one
  // sequence.
  std::vector<ShareWork> SharesOf(const PassShape& pass, int64_t shares) const override {
    Work all;
    AddWork(pass, all);
    std::vector<ShareWork> result(static_cast<size_t>(shares));
    const int64_t tokens = pass.rows[rows()];
    if (all.macs() == 0 || tokens == 0) return result;
    const int64_t parts = PartsOf(tokens, shares);
    const int64_t before = pass.parts.front().end - pass.parts.front().rows;
    const auto seen = [before](int64_t row) { return (before + row) * (before + row + 1) / 2; };
    const auto total = static_cast<double>(shape_.heads * (seen(tokens) - seen(0)));
    for (int64_t share = 0; share < shares; ++share) {
      ShareWork& taken = result[static_cast<size_t>(share)];
      for (int64_t i = PlaceInTurn({share, shares}); i < shape_.heads * parts; i += shares) {
        const int64_t part = i / shape_.heads;
        taken.units +=
            static_cast<double>(seen(tokens * (part + 1) / parts) - seen(tokens * part / parts));
      }
      taken.work = all * (taken.units / total);
    }
    return result;
  }

  std::vector<const formats::GgufTensor*> Matrices() const override {
    if (keys_.matrices().tensor == values_.matrices().tensor) return {keys_.matrices().tensor};
    return {keys_.matrices().tensor, values_.matrices().tensor};
  }
  std::string Describe() const override {
    return fmt::format("{} heads, keys {}; values {}", shape_.heads, keys_.Describe(),
                       values_.Describe());
  }

 private:
  // The rows are cut where there are fewer heads than threads, but no finer than this.
  static constexpr int64_t kPartRows = 64;
  int64_t PartsOf(int64_t rows, int64_t shares) const {
    // A share each, or two for teams with more threads than heads, leaves few threads idle.
    const int64_t wanted = (std::max<int64_t>(shares / 2, 1) + shape_.heads - 1) / shape_.heads;
    return std::clamp<int64_t>(rows / kPartRows, 1, wanted);
  }

  bool reads_int8() const { return keys_.reads_int8() || values_.reads_int8(); }

  // Lays the arrays out from `base` on; `size` becomes what they take.
  ExpandedScratch PlaceArrays(const PassLimits& limits, std::byte* base, size_t& size) const {
    size = 0;
    const auto place = [&](size_t bytes) {
      std::byte* array = base == nullptr ? nullptr : base + size;
      size += RoundUp(bytes, 64);
      return array;
    };
    const auto floats = [&](int64_t count) {
      return reinterpret_cast<float*>(place(static_cast<size_t>(count) * sizeof(float)));
    };
    const auto runs = [&](int64_t count) {
      return std::span(
          reinterpret_cast<cpu::KvRun*>(place(static_cast<size_t>(count) * sizeof(cpu::KvRun))),
          static_cast<size_t>(base == nullptr ? 0 : count));
    };
    ExpandedScratch scratch;
    scratch.cached = runs(kv::PassView::RunsMax(limits.context, limits.sequences));
    scratch.expanded = runs(kSpan / kv::kBlockTokens);
    scratch.latents = floats(kSpan * shape_.latent);
    scratch.records = place(reads_int8() ? static_cast<size_t>(kSpan) * RecordBytes() : size_t{0});
    scratch.rotated = floats(kSpan * shape_.rope);
    scratch.keys = floats(kSpan * shape_.head_dim());
    scratch.key_tiles =
        place(cpu::KeyTileOffset(kExpandedType, static_cast<int>(shape_.head_dim()), kSpan));
    scratch.values = floats(kSpan * shape_.v_dim);
    scratch.partials = floats(limits.chunk * PartialFloats());
    scratch.results = floats(limits.chunk * PartialFloats());
    const size_t kernels = std::max(
        {keys_.ScratchBytes(), values_.ScratchBytes(),
         kernels_.attention_scratch_bytes(limits.chunk, 1, static_cast<int>(shape_.head_dim()),
                                          static_cast<int>(shape_.v_dim), cpu::KeyForm::kStored)});
    scratch.kernels = {place(kernels), kernels};
    return scratch;
  }
  size_t SizeOf(const PassLimits& limits) const {
    size_t size;
    PlaceArrays(limits, nullptr, size);
    return size;
  }
  ExpandedScratch Place(const PassLimits& limits, std::byte* base) const {
    size_t size;
    return PlaceArrays(limits, base, size);
  }

  int64_t PartialFloats() const {
    return cpu::AttentionPartialFloats(static_cast<int>(shape_.v_dim));
  }
  size_t RecordBytes() const { return RoundUp(cpu::ActivationRowBytes(shape_.latent), 64); }

  void RunTask(const PassContext& pass, int64_t head, const Range& rows,
               ExpandedScratch& scratch) const {
    // A pass of many tokens is of one sequence, so all its work has the same runs.
    const kv::PassView::Work& work = pass.kv->work(cache_id_).front();
    const std::span<const cpu::KvRun> cached = pass.kv->Runs(cache_id_, 0, work, scratch.cached);
    for (int64_t row = 0; row < rows.end - rows.begin; ++row) {
      float* result = scratch.results + row * PartialFloats();
      result[0] = -std::numeric_limits<float>::infinity();
      std::fill_n(result + 1, PartialFloats() - 1, 0.0f);
    }
    const int64_t end = pass.positions[static_cast<size_t>(rows.end - 1)] + 1;
    for (int64_t span = 0; span * kSpan < end; ++span) {
      const Range positions = {span * kSpan, std::min(end, (span + 1) * kSpan)};
      const std::span<const cpu::KvRun> runs = Expand(pass, head, cached, positions, scratch);
      if (runs.empty()) continue;
      Attend(pass, work, head, rows, {span, runs}, scratch);
      for (int64_t row = 0; row < rows.end - rows.begin; ++row) {
        Merge(scratch.partials + row * PartialFloats(), scratch.results + row * PartialFloats());
      }
    }
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* result = scratch.results + (row - rows.begin) * PartialFloats();
      const float total = result[1] == 0.0f ? 1.0f : result[1];
      float* out = pass.FloatRow(out_, row) + head * shape_.v_dim;
      for (int64_t d = 0; d < shape_.v_dim; ++d) out[d] = result[16 + d] / total;
    }
  }

  // Makes a head's keys and values of the cached positions among `positions`, which lie in one
  // span, and returns runs of them.
  std::span<const cpu::KvRun> Expand(const PassContext& pass, int64_t head,
                                     std::span<const cpu::KvRun> cached, const Range& positions,
                                     ExpandedScratch& scratch) const {
    size_t count = 0;
    int64_t loaded = 0;  // rows up to here
    for (const cpu::KvRun& run : cached) {
      const int64_t begin = std::max(positions.begin, run.first_position);
      const int64_t end = std::min(positions.end, run.first_position + run.count);
      if (begin >= end) continue;
      const int64_t at = begin - positions.begin;
      // Positions that the cache has dropped are multiplied, too, and then not seen.
      std::fill(scratch.latents + loaded * shape_.latent, scratch.latents + at * shape_.latent,
                0.0f);
      std::fill(scratch.rotated + loaded * shape_.rope, scratch.rotated + at * shape_.rope, 0.0f);
      LoadRows(pass.kv->shape(cache_id_), run, {begin, end}, at, scratch);
      loaded = end - positions.begin;
      const auto token = static_cast<size_t>(at);
      const int head_dim = static_cast<int>(shape_.head_dim());
      const int v_dim = static_cast<int>(shape_.v_dim);
      scratch.expanded[count++] = {
          .keys = scratch.key_tiles + cpu::KeyTileOffset(kExpandedType, head_dim, token),
          .values = reinterpret_cast<const std::byte*>(scratch.values) +
                    cpu::ValueTileOffset(kExpandedType, v_dim, token),
          .first_position = begin,
          .count = end - begin};
    }
    if (count > 0) Multiply(head, loaded, scratch);
    return scratch.expanded.first(count);
  }

  // Reads latents and rotated parts of some positions of a run as the model made them, to the rows
  // from number `at` on.
  void LoadRows(const kv::GroupShape& stored, const cpu::KvRun& run, const Range& positions,
                int64_t at, ExpandedScratch& scratch) const {
    const int64_t token = positions.begin - run.first_position;
    const int64_t count = positions.end - positions.begin;
    float* latents = scratch.latents + at * shape_.latent;
    LoadLatents(stored.v_type, run, token, count, latents);
    if (stored.rotate_values) kernels_.rotate(latents, count, shape_.latent);
    float* rotated = scratch.rotated + at * shape_.rope;
    LoadRotated(stored.k_type, run, token, count, rotated);
    if (stored.rotate_keys) kernels_.rotate(rotated, count, shape_.rope);
  }

  // The scales of a token of a run.
  static const std::byte* ScalesAt(const void* scales, KvType type, int64_t dims, int64_t token) {
    return static_cast<const std::byte*>(scales) +
           static_cast<size_t>(token) * cpu::KvScaleBytes(type, dims);
  }

  void LoadLatents(KvType type, const cpu::KvRun& run, int64_t token, int64_t count,
                   float* latents) const {
    const int64_t dims = shape_.latent;
    cpu::VisitKvFormat(type, [&]<class Format>(Format) {
      if constexpr (Format::kHasScales) {
        for (int64_t t = token; t < token + count; ++t) {
          const std::byte* tile = run.values + cpu::ValueTileOffset(type, static_cast<int>(dims),
                                                                    static_cast<size_t>(t));
          const auto slot = static_cast<size_t>(t % cpu::kValueTileTokens);
          const std::byte* scales = ScalesAt(run.value_scales, type, dims, t);
          float* row = latents + (t - token) * dims;
          for (int64_t d = 0; d < dims; ++d) {
            const auto at = static_cast<size_t>(d);
            const int code =
                Format::Decode(Format::Value(tile, slot, at, static_cast<size_t>(dims)));
            row[d] = cpu::KvScaleOf<Format>(scales, at) * static_cast<float>(code);
          }
        }
      } else {
        using Number = typename Format::Number;
        const char* name = sizeof(Number) == sizeof(float) ? quant::F32::kName : quant::F16::kName;
        const auto format = static_cast<size_t>(quant::FormatIndex(*quant::FindFormat(name)));
        kernels_.decode[format](run.values + token * dims * static_cast<int64_t>(sizeof(Number)),
                                latents, count * dims);
      }
    });
  }

  void LoadRotated(KvType type, const cpu::KvRun& run, int64_t token, int64_t count,
                   float* rotated) const {
    const int64_t dims = shape_.rope;
    cpu::VisitKvFormat(type, [&]<class Format>(Format) {
      for (int64_t t = token; t < token + count; ++t) {
        const std::byte* tile =
            run.keys + cpu::KeyTileOffset(type, static_cast<int>(dims), static_cast<size_t>(t));
        const auto slot = static_cast<size_t>(t % cpu::kKeyTileTokens);
        float* row = rotated + (t - token) * dims;
        for (int64_t d = 0; d < dims; ++d) {
          const auto at = static_cast<size_t>(d);
          row[d] = static_cast<float>(Format::Decode(Format::Key(tile, slot, at)));
          if constexpr (Format::kHasScales) {
            row[d] *= cpu::KvScaleOf<Format>(ScalesAt(run.key_scales, type, dims, t), at);
          }
        }
      }
    });
  }

  // Keys and values of the first `count` rows.
  void Multiply(int64_t head, int64_t count, ExpandedScratch& scratch) const {
    const float* latents = scratch.latents;
    if (reads_int8()) {
      for (int64_t i = 0; i < count; ++i) {
        std::byte* record = scratch.records + static_cast<size_t>(i) * RecordBytes();
        kernels_.Quantize(cpu::TokenCount::kMany, latents + i * shape_.latent, shape_.latent,
                          cpu::ActivationRowAt(record, shape_.latent));
      }
    }
    const auto run = [&](const HeadProduct& product, float* out, int64_t stride) {
      HeadProduct::Rows rows;
      rows.in =
          product.reads_int8() ? scratch.records : reinterpret_cast<const std::byte*>(latents);
      rows.in_stride = product.reads_int8() ? static_cast<int64_t>(RecordBytes())
                                            : shape_.latent * static_cast<int64_t>(sizeof(float));
      rows.count = count;
      rows.tokens = cpu::TokenCount::kMany;
      rows.out = out;
      rows.out_stride = stride;
      product.Run(head, {0, product.matrices().rows}, rows, scratch.kernels);
    };
    run(values_, scratch.values, shape_.v_dim);
    run(keys_, scratch.keys, shape_.head_dim());
    const int head_dim = static_cast<int>(shape_.head_dim());
    for (int64_t i = 0; i < count; ++i) {
      float* key = scratch.keys + i * shape_.head_dim();
      std::copy_n(scratch.rotated + i * shape_.rope, shape_.rope, key + shape_.nope);
      const auto token = static_cast<size_t>(i);
      kernels_.store_key(
          key, shape_.head_dim(), kExpandedType, static_cast<int>(token % cpu::kKeyTileTokens),
          scratch.key_tiles + cpu::KeyTileOffset(kExpandedType, head_dim, token), nullptr);
    }
  }

  struct ExpandedSpan {
    int64_t number;
    std::span<const cpu::KvRun> runs;
  };

  // Leaves the partial results of the rows in a span.
  void Attend(const PassContext& pass, const kv::PassView::Work& work, int64_t head,
              const Range& rows, const ExpandedSpan& span, ExpandedScratch& scratch) const {
    cpu::AttentionTask task;
    task.queries =
        pass.FloatRow(queries_.value, rows.begin) + queries_.first + head * queries_.stride;
    task.query_row_stride = pass.RowFloats(queries_.value);
    task.out = nullptr;
    task.out_row_stride = 0;
    task.rows = rows.end - rows.begin;
    task.positions = pass.positions.data() + rows.begin;
    task.heads_per_kv = 1;
    task.k_dim = static_cast<int>(shape_.head_dim());
    task.v_dim = static_cast<int>(shape_.v_dim);
    task.k_type = task.v_type = kExpandedType;
    task.scale = scale_;
    task.window = 0;
    task.runs = span.runs;
    task.hidden = pass.kv->Hidden(cache_id_, work);
    task.slice = {span.number, span.number, span.number + 1, scratch.partials};
    task.scratch = scratch.kernels;
    if (!as_few_) task.count = cpu::TokenCount::kMany;
    // Rows that see nothing of the span are left out by some instruction sets.
    for (int64_t row = 0; row < task.rows; ++row) {
      scratch.partials[row * PartialFloats() + 1] = 0.0f;
    }
    kernels_.attention(task);
  }

  void Merge(const float* part, float* result) const {
    if (part[1] == 0.0f) return;  // nothing that this row sees
    const float max = std::max(result[0], part[0]);
    const float old_factor = std::exp2(result[0] - max);
    const float part_factor = std::exp2(part[0] - max);
    result[0] = max;
    result[1] = result[1] * old_factor + part[1] * part_factor;
    for (int64_t d = 0; d < shape_.v_dim; ++d) {
      result[16 + d] = result[16 + d] * old_factor + part[16 + d] * part_factor;
    }
  }

  const cpu::KernelTable& kernels_;
  HeadProduct keys_;
  HeadProduct values_;
  bool as_few_;
  int cache_id_;
  LatentShape shape_;
  float scale_;
  HeadColumns queries_;
  ValueId out_;
};

}  // namespace

std::unique_ptr<Node> MakeExpandedAttention(const cpu::KernelTable& kernels,
                                            const cpu::FloatGemm& float_gemm, int cache_id,
                                            const LatentShape& shape, float scale,
                                            const HeadMatrices& keys, const HeadMatrices& values,
                                            const HeadColumns& queries, ValueId out) {
  return std::make_unique<ExpandedAttentionNode>(kernels, float_gemm, cache_id, shape, scale, keys,
                                                 values, queries, out);
}

}  // namespace kvant::graph
