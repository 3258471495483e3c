#include "engine/model/offload_layers.h"

#include <algorithm>
#include <iterator>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/graph/plan.h"

namespace kvant {
namespace {

constexpr int64_t kDeviceHeadStep = 8;
constexpr int64_t kDeviceHeadMax = 256;
constexpr int64_t kDeviceLatentMax = 512;

bool IsDimension(int64_t dim, int64_t most) {
  return dim > 0 && dim <= most && dim % kDeviceHeadStep == 0;
}

bool CanOffload(const graph::CacheLayer& layer) {
  return layer.state_floats == 0 && !layer.chosen && layer.keeps == graph::Keeps::kTokens &&
         IsDimension(layer.k_dim, kDeviceHeadMax) &&
         IsDimension(layer.v_dim, layer.latent ? kDeviceLatentMax : kDeviceHeadMax);
}

Offload default_offload = Offload::kNone;

}  // namespace

void SetDefaultOffload(Offload offload) { default_offload = offload; }

SessionOptions WithDefaultOffload(const Model& model, SessionOptions options) {
  if (default_offload == Offload::kNone || options.offload != Offload::kNone) return options;
  SessionOptions offloaded = options;
  offloaded.offload = default_offload;
  return CheckOffload(model, offloaded).ok() ? offloaded : options;
}

Status CheckOffload(const Model& model, const SessionOptions& options) {
  const int64_t layers = std::ssize(model.cache_layers());
  if (options.offload == Offload::kNone) {
    if (options.kv_device == KvDevice::kAuto && options.offload_layers.empty()) return {};
    return MakeError(ErrorCode::kInvalid,
                     "offload: a device or layers are chosen, but nothing is offloaded; expected "
                     "the offload \"attention\" with them");
  }
  if (!options.kv_cache) {
    return MakeError(ErrorCode::kInvalid, "offload: expected a KV cache, found none");
  }
  const auto on_device = [](KvType type) { return cpu::KvTraitsOf(type).on_device; };
  for (const KvType type : {options.k_type, options.v_type}) {
    if (on_device(type)) continue;
    std::vector<KvType> expected;
    std::ranges::copy_if(AllKvTypes(), std::back_inserter(expected), on_device);
    return MakeError(ErrorCode::kNotSupported,
                     "offload: expected keys and values of type {}, found {}",
                     KvTypeNames(expected), KvTypeName(type));
  }
  for (const int layer : options.offload_layers) {
    if (layer >= 0 && layer < layers) continue;
    return MakeError(ErrorCode::kInvalid, "offload: expected layers 0 to {}, found {}", layers - 1,
                     layer);
  }
  if (!OffloadableLayers(model, options).empty()) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "offload: none of the layers can be offloaded; expected attention over the "
                   "tokens of a sequence, with heads of a multiple of {} dimensions up to {}, or "
                   "latents up to {}",
                   kDeviceHeadStep, kDeviceHeadMax, kDeviceLatentMax);
}

std::vector<int> OffloadableLayers(const Model& model, const SessionOptions& options) {
  std::vector<int> layers;
  if (options.offload == Offload::kNone) return layers;
  const std::vector<int>& named = options.offload_layers;
  for (int id = 0; id < std::ssize(model.cache_layers()); ++id) {
    const bool wanted = named.empty() || std::find(named.begin(), named.end(), id) != named.end();
    if (wanted && CanOffload(model.cache_layers()[static_cast<size_t>(id)])) layers.push_back(id);
  }
  return layers;
}

}  // namespace kvant
