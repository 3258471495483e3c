// Defaults and limits of options.
#include "kvant/session_options.h"

#include <algorithm>

#include "base/cpu_topology.h"
#include "base/result.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"
#include "engine/arch/spec.h"
#include "engine/graph/plan.h"
#include "engine/limits.h"
#include "engine/model/offload_layers.h"
#include "engine/run/session_settings.h"

namespace kvant {

static_assert(kSharedRowsMax == cpu::kManyTokens - 1);

namespace {

// kNotSupported for keys or values that the type has no room for.
Status CheckHeadDim(KvType type, int64_t dim) {
  const cpu::KvTraits& traits = cpu::KvTraitsOf(type);
  if (dim <= traits.dim_max) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "KV cache type {}: expected heads of at most {} dimensions, found {}",
                   traits.name, traits.dim_max, dim);
}

}  // namespace

Result<SessionOptions> ResolveOptions(const Model& model, SessionOptions options) {
  if (options.context == 0) options.context = model.context_length();
  if (options.threads == 0) {
    KVANT_ASSIGN(const int useful, DefaultThreadCount(options.placement));
    options.threads = static_cast<int>(std::min<int64_t>(useful, kThreadsMax));
  }
  for (const SessionSetting& setting : AllSessionSettings()) KVANT_TRY(setting.Check(options));
  const int64_t learned = model.spec().context_max;
  if (learned > 0 && options.context > learned) {
    return MakeError(ErrorCode::kInvalid,
                     "context: the model has learned {} positions and can have no more, found {}",
                     learned, options.context);
  }
  KVANT_TRY(PlaceThreads(ThisCpuTopology(), options.placement, options.threads, 0));
  options.source_k_type = options.source_k_type.value_or(options.k_type);
  options.source_v_type = options.source_v_type.value_or(options.v_type);
  for (const graph::CacheLayer& layer : model.plan().cache_layers()) {
    const bool of_source = layer.keeps == graph::Keeps::kSource;
    KVANT_TRY(CheckHeadDim(of_source ? *options.source_k_type : options.k_type, layer.k_dim));
    KVANT_TRY(CheckHeadDim(of_source ? *options.source_v_type : options.v_type, layer.v_dim));
  }
  options = WithDefaultOffload(model, std::move(options));
  KVANT_TRY(CheckOffload(model, options));
  if (options.offload != Offload::kNone) options.chunk = std::min(options.chunk, kOffloadChunkMax);
  if (options.strict) options.chunk = std::min(options.chunk, kSharedRowsMax);
  // Without a cache every pass computes the whole sequence.
  options.chunk = options.kv_cache ? std::min(options.chunk, options.context) : options.context;
  // A rewind by a log is a pass without products.
  options.state_log = options.kv_cache ? std::min(options.state_log, options.chunk) : 0;
  return options;
}

}  // namespace kvant
