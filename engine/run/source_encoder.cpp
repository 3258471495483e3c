#include "engine/run/source_encoder.h"

#include <atomic>
#include <numeric>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/graph/run_stage.h"
#include "engine/kv/pass_view.h"
#include "engine/memory_plan.h"

namespace kvant::run {

Status SourceEncoder::Run(std::span<const TokenId> tokens, kv::Source& source,
                          const std::atomic<bool>* cancel, const Output& output) {
  const graph::Plan& plan = core_.model->plan(graph::kEncodePlan);
  const int64_t length = std::ssize(tokens);
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
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);

  pass.arena = arena.data();
  pass.value_offsets = layout.value_offsets;
  pass.values = plan.values();
  pass.scratch = scratch.data();
  pass.shared = shared.bytes();
  pass.arrivals = arrivals;
  pass.kv = &view;
  pass.tokens = tokens;
  pass.positions = positions;
  pass.rows.Set(graph::RowSpace::kPass, length);
  KVANT_TRY(graph::RunStage(plan, graph::Stage::kBody, pass, core_.team,
                            {.cancel = core_.options.cancel, .cancel_too = cancel}));
  ++core_.counters.encoder_passes;
  if (!output) return {};
  const size_t numbers = tokens.size() * static_cast<size_t>(pass.RowFloats(plan.encoded()));
  return output({pass.Floats(plan.encoded()), numbers});
}

}  // namespace kvant::run
