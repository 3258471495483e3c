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
#include "engine/memory_plan.h"

namespace kvant::run {

uint64_t SourceInput::Hash() const {
  return frames.empty() ? XXH64(tokens.data(), tokens.size() * sizeof(TokenId), 0)
                        : XXH64(frames.data(), frames.size() * sizeof(float), 0);
}

Status SourceEncoder::Run(const SourceInput& input, int64_t length, kv::Source& source,
                          const std::atomic<bool>* cancel, const Output& output) {
  const graph::Plan& plan = core_.model->plan(graph::kEncodePlan);
  graph::PassContext pass;
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

  // A sequence of no tokens, which has the tables of the source.
  kv::Sequence reader;
  reader.tables = source.tables;
  kv::PassView view(*core_.cache, 1, length);
  const kv::PartRows part = {&reader, 0, length};
  view.Set({&part, 1});
  std::vector<int64_t> positions(static_cast<size_t>(length));
  std::iota(positions.begin(), positions.end(), 0);

  pass.arena = arena.data();
  pass.value_offsets = layout.value_offsets;
  pass.values = plan.values();
  pass.scratch = scratch.data();
  pass.shared = shared.bytes();
  pass.arrivals = arrivals;
  pass.kv = &view;
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
