#include "engine/run/source_encoder.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include <xxhash.h>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/graph/run_stage.h"
#include "engine/kv/pass_view.h"
#include "engine/run/memory_plan.h"

namespace kvant::run {

uint64_t SourceInput::Hash() const {
  return frames.empty() ? XXH64(tokens.data(), tokens.size() * sizeof(TokenId), 0)
                        : XXH64(frames.data(), frames.size() * sizeof(float), 0);
}

int64_t SourceInput::Positions(const Model& model) const {
  return frames.empty() ? std::ssize(tokens) : model.source_length();
}

Status SourceEncoder::Run(const SourceInput& input, kv::Source& source,
                          const std::atomic<bool>* cancel, const Output& output) {
  const int64_t length = input.Positions(*core_.model);
  // A sequence of no tokens, which has the tables of the source.
  kv::Sequence reader;
  reader.tables = source.tables;
  kv::PassView view(*core_.cache, 1, length);
  const kv::PartRows part = {&reader, 0, length};
  view.Set({&part, 1});
  graph::PassContext pass;
  pass.kv = &view;
  return RunPlan(input, pass, cancel, output);
}

Status SourceEncoder::Run(const SourceInput& input, graph::UncachedSource& rows,
                          const std::atomic<bool>* cancel, const Output& output) {
  const auto layers = core_.model->plan(graph::kEncodePlan).cache_layers();
  rows.positions = input.Positions(*core_.model);
  rows.layers.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const graph::CacheLayer& layer = layers[i];
    if (layer.keeps != graph::Keeps::kSource) continue;
    const int64_t columns = layer.kv_heads * (layer.k_dim + layer.v_dim);
    rows.layers[i].resize(static_cast<size_t>(rows.positions * columns));
  }
  graph::PassContext pass;
  pass.source = &rows;
  return RunPlan(input, pass, cancel, output);
}

Status SourceEncoder::RunPlan(const SourceInput& input, graph::PassContext& pass,
                              const std::atomic<bool>* cancel, const Output& output) {
  const graph::Plan& plan = core_.model->plan(graph::kEncodePlan);
  const int64_t length = input.Positions(*core_.model);
  pass.limits = EncoderLimits(core_.options, length);
  const graph::ArenaLayout layout = plan.Layout(length);
  KVANT_ASSIGN(const AlignedBuffer arena, AlignedBuffer::Allocate(layout.bytes, "encoder"));
  pass.scratch_bytes = plan.ScratchBytes(pass.limits);
  KVANT_ASSIGN(const AlignedBuffer scratch,
               AlignedBuffer::Allocate(
                   pass.scratch_bytes * static_cast<size_t>(core_.options.threads), "scratch"));
  KVANT_ASSIGN(const AlignedBuffer shared,
               AlignedBuffer::Allocate(plan.SharedBytes(pass.limits), "partial results"));
  std::vector<std::atomic<int32_t>> arrivals(static_cast<size_t>(pass.limits.shares));
  std::vector<int64_t> positions(static_cast<size_t>(length));
  std::iota(positions.begin(), positions.end(), 0);

  pass.arena = arena.data();
  pass.value_offsets = layout.value_offsets;
  pass.values = plan.values();
  pass.scratch = scratch.data();
  pass.shared = shared.bytes();
  pass.arrivals = arrivals;
  pass.tokens = input.tokens;
  pass.frames = input.frames;
  pass.positions = positions;
  pass.rows.Set(graph::RowSpace::kPass, length);
  pass.rows.Set(graph::RowSpace::kFrames, graph::kFramesPerPosition * length);
  KVANT_TRY(graph::RunStage(plan, graph::Stage::kBody, pass, core_.team,
                            {.cancel = core_.options.cancel, .cancel_too = cancel}));
  ++core_.counters.encoder_passes;
  if (!output) return {};
  // Rows of the arena begin at multiples of 64 bytes.
  const int64_t cols = pass.ValueOf(plan.encoded()).cols;
  std::vector<float> rows(static_cast<size_t>(length * cols));
  for (int64_t row = 0; row < length; ++row) {
    std::copy_n(pass.FloatRow(plan.encoded(), row), cols, rows.data() + row * cols);
  }
  return output(rows);
}

}  // namespace kvant::run
