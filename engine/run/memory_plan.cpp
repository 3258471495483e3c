// Groups of layers, and sums of bytes.
#include "engine/run/memory_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/available_memory.h"
#include "base/counted.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/activations.h"
#include "cpu/kernels/attention.h"
#include "cpu/kv_format_list.h"
#include "engine/graph/device/device_attention.h"
#include "engine/graph/plan.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/policies/encoder.h"
#include "engine/kv/policies/fixed.h"
#include "engine/kv/policies/sections.h"
#include "engine/kv/policies/state.h"
#include "engine/model/offload_layers.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

// The policy of a layer's group; empty: as the window says.
std::string_view PolicyOf(const graph::CacheLayer& layer) {
  if (layer.keeps == graph::Keeps::kSource) return kv::Fixed::kName;
  if (layer.keeps == graph::Keeps::kEncoder) return kv::Encoder::kName;
  const bool sections = layer.window > 0 && layer.window_kind == cpu::WindowKind::kSections;
  return sections ? kv::Sections::kName : std::string_view();
}

// The words of 32 bits of a recurrent layer's state, and what its scans keep.
struct StateWords {
  int64_t words;
  KvType type;
};

StateWords StateWordsOf(const graph::CacheLayer& layer, const SessionOptions& options) {
  if (layer.scan_floats == 0 || options.state_type == KvType::kF32) {
    return {layer.state_floats, KvType::kF32};
  }
  return {layer.state_floats - layer.scan_floats / 2, KvType::kF16};
}

// Recurrent layers with states of this size. Their type is not that of keys and values: what states
// lose adds up from token to token.
kv::GroupShape StateGroup(const StateWords& state, const SessionOptions& options) {
  kv::GroupShape shape;
  shape.kv_heads = 1;
  shape.k_dim = static_cast<int>(state.words);
  shape.k_type = shape.v_type = state.type;
  shape.policy = kv::State::kName;
  shape.checkpoints = options.state_checkpoints;
  return shape;
}

// The types of keys and values. An encoder keeps one layer's keys and values for a moment, as exact
// as its sums.
struct RowTypes {
  KvType k_type;
  KvType v_type;
};

RowTypes RowTypesOf(const graph::CacheLayer& layer, const SessionOptions& options) {
  switch (layer.keeps) {
    case graph::Keeps::kTokens: break;
    case graph::Keeps::kSource:
      return {options.source_k_type.value_or(options.k_type),
              options.source_v_type.value_or(options.v_type)};
    case graph::Keeps::kEncoder: return {KvType::kF32, KvType::kF32};
  }
  return {options.k_type, options.v_type};
}

// Attentions like this one.
kv::GroupShape RowGroup(const graph::CacheLayer& layer, int64_t source,
                        const SessionOptions& options) {
  const RowTypes types = RowTypesOf(layer, options);
  kv::GroupShape shape;
  shape.window = layer.window;
  shape.kv_heads = static_cast<int>(layer.kv_heads);
  shape.k_dim = static_cast<int>(layer.k_dim);
  shape.v_dim = static_cast<int>(layer.v_dim);
  shape.k_type = types.k_type;
  shape.v_type = types.v_type;
  shape.rotate_keys = options.kv_rotation && cpu::KvTraitsOf(types.k_type).is_rotated;
  shape.rotate_values =
      layer.v_dim > 0 && options.kv_rotation && cpu::KvTraitsOf(types.v_type).is_rotated;
  shape.policy = PolicyOf(layer);
  shape.source = layer.keeps == graph::Keeps::kTokens ? 0 : source;
  return shape;
}

// Layers with the same window, heads and dimensions share a group.
std::vector<kv::GroupShape> GroupLayers(const Model& model, const SessionOptions& options,
                                        std::span<const int> offloaded) {
  const std::span<const graph::CacheLayer> layers = model.cache_layers();
  std::vector<kv::GroupShape> groups;
  for (size_t i = 0; i < layers.size(); ++i) {
    const graph::CacheLayer& layer = layers[i];
    const StateWords state = StateWordsOf(layer, options);
    const bool on_device =
        std::find(offloaded.begin(), offloaded.end(), static_cast<int>(i)) != offloaded.end();
    const std::string_view store = on_device ? kv::DeviceStore::kName : kv::HostStore::kName;
    const auto same = [&layer, &state, store](const kv::GroupShape& group) {
      if (group.holds_states()) return group.k_dim == state.words && group.k_type == state.type;
      return layer.state_floats == 0 && group.store == store && group.window == layer.window &&
             group.policy == PolicyOf(layer) && group.kv_heads == layer.kv_heads &&
             group.k_dim == layer.k_dim && group.v_dim == layer.v_dim;
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end() && layer.state_floats > 0) {
      groups.push_back(StateGroup(state, options));
      group = groups.end() - 1;
    } else if (group == groups.end()) {
      groups.push_back(RowGroup(layer, model.source_length(), options));
      group = groups.end() - 1;
      group->store = store;
    }
    group->layers.push_back(static_cast<int>(i));
    if (!layer.key_offset.empty() && cpu::KvHasScales(group->k_type) && !group->holds_states()) {
      group->key_offsets.resize(group->layers.size());
      group->key_offsets.back() = layer.key_offset;
    }
  }
  for (kv::GroupShape& group : groups) {
    if (group.shifts_keys()) group.key_offsets.resize(group.layers.size());
  }
  return groups;
}

MemoryPlan::Group StatesOf(const kv::GroupShape& shape, int64_t blocks) {
  MemoryPlan::Group states;
  states.layers = static_cast<int>(shape.layers.size());
  states.states = blocks;
  states.state_bytes = shape.block_bytes();
  states.bytes = shape.block_bytes() * static_cast<uint64_t>(blocks);
  return states;
}

}  // namespace

graph::PassLimits EncoderLimits(const SessionOptions& options, int64_t positions) {
  return {.chunk = positions,
          .context = positions,
          .sequences = 1,
          .shares = ThreadPool::SharesOf(options.threads),
          .kv_cache = options.kv_cache,
          .source = positions};
}

uint64_t EncoderBytes(const Model& model, const SessionOptions& options, int64_t positions) {
  const graph::Plan& plan = model.plan(graph::kEncodePlan);
  const graph::PassLimits limits = EncoderLimits(options, positions);
  uint64_t bytes = plan.Layout(positions).bytes + plan.SharedBytes(limits) +
                   plan.ScratchBytes(limits) * static_cast<uint64_t>(options.threads);
  if (options.kv_cache) return bytes;
  for (const graph::CacheLayer& layer : plan.cache_layers()) {  // graph::UncachedSource
    if (layer.keeps != graph::Keeps::kSource) continue;
    bytes += static_cast<uint64_t>(positions * layer.kv_heads * (layer.k_dim + layer.v_dim)) *
             sizeof(float);
  }
  return bytes;
}

std::vector<const graph::Plan*> DraftPlans(const Model& model) {
  std::vector<const graph::Plan*> plans;
  for (int64_t i = 0; i < model.predictors(); ++i) {
    plans.push_back(&model.plan(graph::kDraftPlans[static_cast<size_t>(i)]));
  }
  return plans;
}

// Several layers guess in turn, each over all tokens so far, whose keys it has not stored yet.
int64_t DraftRows(const Model& model) { return std::max<int64_t>(1, model.predictors()); }

graph::PassLimits DraftLimits(const SessionOptions& options) {
  return {.chunk = kSharedRowsMax - 1,
          .context = options.context,
          .sequences = 1,
          .shares = ThreadPool::SharesOf(options.threads),
          .kv_cache = true};
}

uint64_t DraftBytes(const Model& model, const SessionOptions& options) {
  const graph::PassLimits limits = DraftLimits(options);
  uint64_t arena = 0;
  uint64_t shared = 0;
  uint64_t scratch = 0;
  for (const graph::Plan* plan : DraftPlans(model)) {
    arena = std::max<uint64_t>(arena, plan->Layout(DraftRows(model)).bytes);
    shared = std::max<uint64_t>(shared, plan->SharedBytes(limits));
    scratch = std::max<uint64_t>(scratch, plan->ScratchBytes(limits));
  }
  return arena + shared + scratch * static_cast<uint64_t>(options.threads);
}

kv::CacheOptions CacheOptionsFor(const Model& model, const SessionOptions& options,
                                 std::span<const int> offloaded) {
  return {.groups = GroupLayers(model, options, offloaded),
          .context = options.context,
          .source = model.source_length(),
          .chunk = options.chunk,
          .sequences = options.sequences,
          .bytes_max = options.kv_bytes_max,
          .commit = options.kv_commit,
          .poison = options.kv_poison};
}

uint64_t OffloadedCacheBytes(const Model& model, const SessionOptions& options,
                             const std::vector<int>& layers) {
  kv::CacheOptions cache = CacheOptionsFor(model, options, layers);
  std::erase_if(cache.groups,
                [](const kv::GroupShape& shape) { return shape.store != kv::DeviceStore::kName; });
  cache.bytes_max = 0;
  cache.commit = true;  // a device has no memory on demand
  return kv::Cache::BytesNeeded(cache);
}

uint64_t OffloadedPassBytes(const Model& model, const SessionOptions& options) {
  const graph::Plan& plan = model.plan();
  uint64_t row = 0;
  for (const graph::Value& value : plan.values()) {
    if (value.kind == cpu::ActivationKind::kFloat32 && value.rows == graph::RowSpace::kPass) {
      row = std::max<uint64_t>(row, value.row_bytes);
    }
  }
  const graph::PassLimits limits = {.chunk = options.chunk,
                                    .context = options.context,
                                    .sequences = std::min(options.sequences, kSharedRowsMax)};
  const std::vector<kv::GroupShape> groups =
      GroupLayers(model, options, OffloadableLayers(model, options));
  const auto on_device = std::count_if(groups.begin(), groups.end(), [](const auto& shape) {
    return shape.store == kv::DeviceStore::kName;
  });
  // Rows that come, their results, and rows that are stored.
  return 3 * std::bit_ceil(static_cast<uint64_t>(options.chunk) * row) + plan.DeviceBytes(limits) +
         static_cast<uint64_t>(on_device) * graph::DeviceAttention::TableBytes(limits);
}

Status CheckMemory(const kv::CacheOptions& cache) {
  kv::CacheOptions wanted = cache;
  const uint64_t budget = std::exchange(wanted.bytes_max, 0);
  const uint64_t available = std::min(AvailableMemory(), budget == 0 ? UINT64_MAX : budget);
  const uint64_t needed = kv::Cache::BytesNeeded(wanted);
  if (needed <= available) return {};
  const MemoryFit fit = FitMemory(wanted, available);
  return MakeError(ErrorCode::kOutOfMemory,
                   "KV cache: {} bytes are needed for {} of {}, {} are "
                   "available; {} of the sequences, or {} of each, would fit",
                   needed, Counted(wanted.sequences, "sequence"),
                   Counted(wanted.context, "position"), available,
                   std::min(fit.sequences, wanted.sequences), Counted(fit.context, "position"));
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
  for (const formats::GgufTensor& tensor : model.file().tensors()) {
    (formats::IsScatteredTable(tensor) ? plan.tables_on_disk : plan.weights) += tensor.size_bytes;
  }
  plan.weights += model.plan().derived_bytes();
  if (options.kv_cache) {
    const std::vector<int> offloaded = OffloadableLayers(model, options);
    const kv::CacheOptions cache = CacheOptionsFor(model, options, offloaded);
    for (const kv::GroupShape& shape : cache.groups) {
      const int64_t blocks = kv::Cache::BlocksNeeded(shape, options.context, options.chunk);
      if (shape.holds_states()) {
        plan.groups.push_back(StatesOf(shape, blocks));
        continue;
      }
      const int64_t rows = blocks * kv::kBlockTokens;
      plan.groups.push_back({.layers = static_cast<int>(shape.layers.size()),
                             .window = shape.window,
                             .kv_heads = shape.kv_heads,
                             .k_dim = shape.k_dim,
                             .v_dim = shape.v_dim,
                             .k_type = shape.k_type,
                             .v_type = shape.v_type,
                             .rows = rows,
                             .bytes = shape.bytes_per_token() * static_cast<uint64_t>(rows),
                             .bytes_per_token = shape.bytes_per_token(),
                             .positions = shape.MakePolicy()->Describe(),
                             .on_device = shape.store == kv::DeviceStore::kName &&
                                          options.kv_device != KvDevice::kCpu});
    }
    plan.kv = kv::Cache::BytesNeeded(cache);
    if (!offloaded.empty()) {
      plan.device = OffloadedPassBytes(model, options);
      if (options.kv_device != KvDevice::kCpu) {
        kv::CacheOptions of_host = cache;
        std::erase_if(of_host.groups, [](const kv::GroupShape& shape) {
          return shape.store == kv::DeviceStore::kName;
        });
        plan.kv_on_device = plan.kv - std::min(plan.kv, kv::Cache::BytesNeeded(of_host));
        plan.device += OffloadedCacheBytes(model, options, offloaded);
      }
    }
  }
  const graph::ArenaLayout layout = model.plan().Layout(options.chunk);
  plan.logits = layout.bytes_of[graph::RowSpace::kHead];
  const graph::PassLimits limits = {.chunk = options.chunk,
                                    .context = options.context,
                                    .sequences = options.sequences,
                                    .shares = ThreadPool::SharesOf(options.threads),
                                    .kv_cache = options.kv_cache,
                                    .source = model.source_length()};
  plan.activations = layout.bytes - plan.logits + model.plan().SharedBytes(limits) +
                     model.plan().ScratchBytes(limits) * static_cast<uint64_t>(options.threads);
  plan.activations += static_cast<uint64_t>(options.sequences * options.state_log) *
                      static_cast<uint64_t>(model.plan().tail_floats()) * sizeof(float);
  if (model.predictors() > 0) {
    plan.activations +=
        DraftBytes(model, options) + static_cast<uint64_t>(options.sequences * kSharedRowsMax) *
                                         static_cast<uint64_t>(model.hidden_dim()) * sizeof(float);
  }
  if (const auto frames = model.frame_shape()) {
    plan.activations +=
        static_cast<uint64_t>(options.sequences * frames->bins * frames->frames) * sizeof(float);
  }
  if (model.has_encoder()) {
    plan.encoder = EncoderBytes(model, options, model.source_length());
  }
  return plan;
}

Status CheckShift(const Model& model, const SessionOptions& options) {
  if (!options.kv_cache) {
    return MakeError(ErrorCode::kNotSupported, "a full context cannot move on without a KV cache");
  }
  KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(model, options));
  const auto has_states = [](const MemoryPlan::Group& group) { return group.states > 0; };
  if (std::ranges::none_of(plan.groups, has_states)) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "a full context cannot move on with this model: its recurrent layers keep one "
                   "state of all tokens, from which none can be taken away");
}

}  // namespace kvant
