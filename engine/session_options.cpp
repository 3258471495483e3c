// Defaults and limits of options, groups of layers, and the memory plan.
#include "engine/session_options.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "engine/graph/plan.h"
#include "engine/kv/kv_cache.h"

namespace kvant {
namespace {

constexpr int64_t kContextMax = int64_t{1} << 30;
constexpr int kThreadsMax = 1024;
constexpr int64_t kSequencesMax = 4096;

// Layers with the same window, heads and dimensions share a group.
std::vector<kv::GroupShape> GroupLayers(const graph::Plan& plan, const SessionOptions& options) {
  std::vector<kv::GroupShape> groups;
  for (size_t i = 0; i < plan.cache_layers().size(); ++i) {
    const graph::CacheLayer& layer = plan.cache_layers()[i];
    const auto same = [&layer](const kv::GroupShape& group) {
      return group.window == layer.window && group.kv_heads == layer.kv_heads &&
             group.k_dim == layer.k_dim && group.v_dim == layer.v_dim;
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      groups.push_back({layer.window,
                        static_cast<int>(layer.kv_heads),
                        static_cast<int>(layer.k_dim),
                        static_cast<int>(layer.v_dim),
                        options.k_type,
                        options.v_type,
                        {},
                        options.kv_rotation && options.k_type == cpu::KvElement::kQ8,
                        options.kv_rotation && options.v_type == cpu::KvElement::kQ8});
      group = groups.end() - 1;
    }
    group->layers.push_back(static_cast<int>(i));
  }
  return groups;
}

}  // namespace

Result<SessionOptions> ResolveOptions(const Model& model, SessionOptions options) {
  if (options.context == 0) options.context = model.context_length();
  if (options.context < 1 || options.context > kContextMax) {
    return MakeError(ErrorCode::kInvalid, "context: expected 1 to {} positions, found {}",
                     kContextMax, options.context);
  }
  if (options.threads == 0) options.threads = DefaultThreadCount();
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return MakeError(ErrorCode::kInvalid, "threads: expected 1 to {}, found {}", kThreadsMax,
                     options.threads);
  }
  if (options.chunk < 1) {
    return MakeError(ErrorCode::kInvalid, "chunk: expected at least 1 token, found {}",
                     options.chunk);
  }
  if (options.sequences < 1 || options.sequences > kSequencesMax) {
    return MakeError(ErrorCode::kInvalid, "sequences: expected 1 to {}, found {}", kSequencesMax,
                     options.sequences);
  }
  for (const graph::CacheLayer& layer : model.plan().cache_layers()) {
    const int64_t dim = std::max(options.k_type == cpu::KvElement::kQ8 ? layer.k_dim : 0,
                                 options.v_type == cpu::KvElement::kQ8 ? layer.v_dim : 0);
    if (dim > cpu::kKvQ8DimMax) {
      return MakeError(ErrorCode::kNotSupported,
                       "KV cache type q8: expected heads of at most {} dimensions, found {}",
                       cpu::kKvQ8DimMax, dim);
    }
  }
  if (options.strict) options.chunk = std::min(options.chunk, kSharedRowsMax);
  // Without a cache a step is the whole sequence.
  options.chunk = options.kv_cache ? std::min(options.chunk, options.context) : options.context;
  return options;
}

kv::CacheOptions CacheOptionsFor(const Model& model, const SessionOptions& options) {
  return {.groups = GroupLayers(model.plan(), options),
          .context = options.context,
          .chunk = options.chunk,
          .sequences = options.sequences,
          .bytes_max = options.kv_bytes_max,
          .commit = options.kv_commit,
          .poison = options.kv_poison};
}

Result<cpu::KvElement> ParseKvType(std::string_view name) {
  if (name == "f32") return cpu::KvElement::kF32;
  if (name == "f16") return cpu::KvElement::kF16;
  if (name == "q8" || name == "q8_0") return cpu::KvElement::kQ8;
  return MakeError(ErrorCode::kInvalid, "KV cache type: expected f32, f16 or q8, found \"{}\"",
                   name);
}

std::string_view KvTypeName(cpu::KvElement type) {
  switch (type) {
    case cpu::KvElement::kF32: return "f32";
    case cpu::KvElement::kF16: return "f16";
    case cpu::KvElement::kQ8: return "q8";
  }
  return "";
}

MemoryFit FitMemory(kv::CacheOptions options, uint64_t bytes) {
  options.bytes_max = 0;
  const int64_t sequences = options.sequences;
  const int64_t context = options.context;
  options.sequences = 1;
  MemoryFit fit{static_cast<int64_t>(bytes / kv::Cache::BytesNeeded(options)), 0};
  // The longest context, by halving the interval.
  options.sequences = sequences;
  int64_t blocks_end = (context + kv::kBlockTokens - 1) / kv::kBlockTokens + 1;
  for (int64_t blocks = 0; blocks_end - blocks > 1;) {
    const int64_t middle = blocks + (blocks_end - blocks) / 2;
    options.context = middle * kv::kBlockTokens;
    if (kv::Cache::BytesNeeded(options) <= bytes) {
      blocks = middle;
      fit.context = std::min(context, options.context);
    } else {
      blocks_end = middle;
    }
  }
  return fit;
}

Result<MemoryPlan> PlanMemory(const Model& model, const SessionOptions& wanted) {
  KVANT_ASSIGN(const SessionOptions options, ResolveOptions(model, wanted));
  MemoryPlan plan;
  for (const formats::GgufTensor& tensor : model.file().tensors())
    plan.weights += tensor.size_bytes;
  if (options.kv_cache) {
    const kv::CacheOptions cache = CacheOptionsFor(model, options);
    for (const kv::GroupShape& shape : cache.groups) {
      const int64_t rows =
          kv::Cache::BlocksNeeded(shape, options.context, options.chunk) * kv::kBlockTokens;
      plan.groups.push_back({static_cast<int>(shape.layers.size()), shape.window, shape.kv_heads,
                             shape.k_dim, shape.v_dim, shape.k_type, shape.v_type, rows,
                             shape.bytes_per_token() * static_cast<uint64_t>(rows),
                             shape.bytes_per_token()});
    }
    plan.kv = kv::Cache::BytesNeeded(cache);
  }
  const graph::ArenaLayout layout = model.plan().Layout(options.chunk);
  plan.logits = layout.bytes_of[graph::RowSpace::kHead];
  const graph::StepLimits limits = {options.chunk, options.context, options.sequences,
                                    ThreadPool::SharesOf(options.threads), options.kv_cache};
  plan.activations = layout.bytes - plan.logits + model.plan().SharedBytes(limits) +
                     model.plan().ScratchBytes(limits) * static_cast<uint64_t>(options.threads);
  return plan;
}

}  // namespace kvant
