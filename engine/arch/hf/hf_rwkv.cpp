#include "engine/arch/hf/hf_rwkv.h"

#include "base/result.h"
#include "engine/limits.h"

namespace kvant::arch {

Status ReadRwkvHeads(const JsonObject& config, std::string_view key, HfShape& shape) {
  shape.context = kRwkvContext;
  KVANT_ASSIGN(shape.rwkv.head_dim, config.Count(key, kHeadDimMax));
  shape.rwkv.heads = shape.dim / shape.rwkv.head_dim;
  if (shape.rwkv.heads * shape.rwkv.head_dim == shape.dim) return {};
  return config.Wrong(key, fmt::format("a divisor of {}", shape.dim));
}

}  // namespace kvant::arch
