#include "engine/graph/attention/attention_work.h"

#include <algorithm>

#include <fmt/format.h>

#include "cpu/kv_format_list.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

// The bytes that the cache keeps of a position for this layer.
uint64_t BytesPerPosition(const AttentionShape& shape, const PassShape::CacheTypes& types) {
  kv::GroupShape stored;
  stored.kv_heads = static_cast<int>(shape.cached_heads());
  stored.k_dim = static_cast<int>(shape.k_dim);
  stored.v_dim = static_cast<int>(shape.v_dim);
  stored.k_type = types.k_type;
  stored.v_type = types.v_type;
  stored.layers = {0};
  return stored.bytes_per_token();
}

// The positions that a row sees at most.
int64_t MostSeen(const AttentionShape& shape) {
  return shape.index.has_value() ? shape.index->all_until() : int64_t{1} << 40;
}

std::string DescribeWindow(const AttentionShape& shape) {
  if (shape.sees_all && shape.window > 0)
    return fmt::format("window {} on both sides", shape.window);
  if (shape.sees_all) return "all positions of a source";
  if (shape.window == 0) return shape.index.has_value() ? "chosen positions" : "all positions";
  const bool sections = shape.window_kind == cpu::WindowKind::kSections;
  return fmt::format("{} {}", sections ? "sections of" : "window", shape.window);
}

}  // namespace

void AddAttentionWork(const AttentionShape& shape, const PassShape& pass, Work& work) {
  for (const PassShape::Part& part : pass.parts) {
    double seen = 0;  // positions, over all rows
    for (int64_t position = part.end - part.rows; position < part.end; ++position) {
      const int64_t sees =
          shape.sees_all ? part.source : position + 1 - shape.FirstVisible(position);
      seen += static_cast<double>(std::min(sees, MostSeen(shape)));
    }
    const auto add = [&](bool int8, int64_t dim) {
      (int8 ? work.int8_macs : work.float_macs) += seen * static_cast<double>(shape.heads * dim);
    };
    const bool expanded =
        shape.latent.has_value() && FormOf(*shape.latent, pass, part) == LatentForm::kExpanded;
    if (!expanded) {
      const int64_t value_uses = shape.latent.has_value() ? 2 : 1;  // as keys, too
      add(pass.cache.has_value() && cpu::KvHasScales(pass.cache->k_type), shape.k_dim);
      add(pass.cache.has_value() && cpu::KvHasScales(pass.cache->v_type), value_uses * shape.v_dim);
    }
    if (!pass.cache.has_value() || part.shares_cache) continue;
    const int64_t visible = shape.sees_all
                                ? part.source
                                : std::min(part.end - shape.FirstVisible(part.end - part.rows),
                                           part.rows * MostSeen(shape));
    work.cache_bytes +=
        static_cast<double>(visible) * static_cast<double>(BytesPerPosition(shape, *pass.cache));
  }
}

std::string DescribeAttention(const AttentionParts& parts) {
  const AttentionShape& shape = parts.shape;
  if (shape.latent.has_value()) {
    return fmt::format("{} heads, latents of {} + {}, {} {}", shape.heads, shape.v_dim, shape.k_dim,
                       DescribeWindow(shape), parts.kernels.isa);
  }
  return fmt::format("{} heads, {} kv heads x {}, {}{}{}{}{}{} {}", shape.heads, shape.kv_heads,
                     shape.k_dim, DescribeWindow(shape),
                     shape.score_cap == 0 ? "" : fmt::format(", scores within {}", shape.score_cap),
                     shape.bias_slopes.empty() ? "" : ", less by distance",
                     shape.distances.values.empty() ? "" : ", plus a number for each distance",
                     shape.sinks.empty() ? "" : ", sinks",
                     parts.out.int8 != kNoValue ? " + quantize int8" : "", parts.kernels.isa);
}

}  // namespace kvant::graph
