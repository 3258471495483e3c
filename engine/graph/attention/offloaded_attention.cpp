#include "engine/graph/attention/offloaded_attention.h"

#include <functional>

#include "engine/graph/cut.h"
#include "engine/graph/device/device_attention.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

// Rotates the parts of queries that meet latents, in place.
void TurnAllQueries(const AttentionParts& parts, const PassContext& pass, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < parts.shape.heads; ++head) {
      parts.kernels.rotate(pass.FloatRow(parts.in.queries, row) + head * parts.shape.query_dim(), 1,
                           parts.shape.v_dim);
    }
  }
}

}  // namespace

void AttendOnDevice(const AttentionParts& parts, uint64_t ticket, const PassContext& pass,
                    const ThreadPool::Member& member) {
  const int64_t rows = pass.RowCount(parts.in.queries);
  const Range range = OwnedRange(rows, 1, member.index, member.count);
  // A layer that reads what another has stored has queries alone.
  const bool stores = parts.is_latent() || parts.in.queries == parts.in.kv;
  const bool turns = parts.is_latent() && pass.kv->shape(parts.cache_id).rotate_values;
  pass.device->Attend(
      {.ticket = ticket,
       .cache_id = parts.cache_id,
       .shape = &parts.shape,
       .scale = parts.scale,
       .many = pass.TokenCount(parts.in.queries) == cpu::TokenCount::kMany,
       .rows = pass.Floats(parts.in.queries),
       .row_count = rows,
       .row_floats = pass.RowFloats(parts.in.queries),
       .prepare = turns ? [&] { TurnAllQueries(parts, pass, rows); } : std::function<void()>(),
       .stored = stores ? pass.Floats(parts.in.kv) : nullptr,
       .stored_floats = stores ? pass.RowFloats(parts.in.kv) : 0,
       .key_column = parts.in.key_column + (parts.is_latent() ? parts.shape.v_dim : 0),
       .value_column = parts.in.value_column,
       .out = pass.Floats(parts.out.floats),
       .out_row_floats = pass.RowFloats(parts.out.floats)},
      range.end);
  for (int64_t head = 0; head < parts.shape.kv_heads && range.begin < range.end; ++head) {
    parts.Finish(pass, range.begin, range.end - range.begin, head);
  }
}

}  // namespace kvant::graph
