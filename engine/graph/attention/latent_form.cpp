// Decides, alone, which form of latent attention a pass has.
#include "cpu/kernels/token_count.h"
#include "engine/graph/attention/latent_nodes.h"

namespace kvant::graph {

// With h heads, latents of r values, and n, p and v for the parts of a head, rows that see `seen`
// positions together cost in multiplications
//   absorbed   h (rows r (n + v) + seen (2 r + p))
//   expanded   h (end r (n + v) + seen (n + p + v))
LatentForm FormOf(const LatentShape& shape, int64_t rows, int64_t end) {
  // Rows that see different positions have nothing to share.
  if (shape.sees_all_until > 0 && end > shape.sees_all_until) return LatentForm::kAbsorbed;
  if (shape.always_absorbed || cpu::TokenCountOf(rows) == cpu::TokenCount::kFew) {
    return LatentForm::kAbsorbed;
  }
  const auto matrices = static_cast<double>(shape.latent * (shape.nope + shape.v_dim));
  const auto row_count = static_cast<double>(rows);
  const auto last = static_cast<double>(end);
  const double seen = row_count * (last - (row_count - 1) / 2);
  const double absorbed =
      row_count * matrices + seen * static_cast<double>(2 * shape.latent + shape.rope);
  const double expanded =
      last * matrices + seen * static_cast<double>(shape.head_dim() + shape.v_dim);
  return expanded < absorbed ? LatentForm::kExpanded : LatentForm::kAbsorbed;
}

LatentForm FormOf(const LatentShape& shape, const PassContext& pass) {
  const int64_t rows = pass.rows[RowSpace::kPass];
  if (pass.kv == nullptr || rows == 0) return LatentForm::kAbsorbed;
  // The matrices of the heads are the CPU's, and the latents are not there.
  if (pass.OnDevice(shape.cache_id)) return LatentForm::kAbsorbed;
  return FormOf(shape, rows, pass.positions[static_cast<size_t>(rows - 1)] + 1);
}

// An estimate: it does not know what a device has.
LatentForm FormOf(const LatentShape& shape, const PassShape& pass, const PassShape::Part& part) {
  return pass.cache.has_value() ? FormOf(shape, part.rows, part.end) : LatentForm::kAbsorbed;
}

}  // namespace kvant::graph
