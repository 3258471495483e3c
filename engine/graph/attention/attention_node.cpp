// The node of an attention, which attends over the cache, without a cache, or on a device.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/attention/attention_nodes.h"
#include "engine/graph/attention/attention_parts.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/attention/attention_work.h"
#include "engine/graph/attention/cached_attention.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/attention/offloaded_attention.h"
#include "engine/graph/attention/text_attention.h"
#include "engine/graph/attention/uncached_attention.h"
#include "engine/graph/device/device_attention.h"

namespace kvant::graph {
namespace {

// More than a plan has nodes: a run of a stage and a node make one number.
constexpr uint64_t kTicketsOfRun = 1 << 16;

class AttentionNode final : public Node {
 public:
  AttentionNode(const cpu::KernelTable& kernels, int cache_id, const AttentionShape& shape,
                float scale, const AttentionInput& in, const Activations& out)
      : Node(fmt::format("layer.{}.attention", cache_id), in.ids(), out.ids()),
        parts_{kernels, cache_id, shape, shape.HeadsPerKv(), scale, in, out} {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (!pass.texts.empty() && !ReadsTextsAlone()) return AttendTexts(parts_, pass, member);
    if (pass.kv == nullptr) return AttendUncached(parts_, pass, member);
    if (pass.OnDevice(parts_.cache_id)) return AttendOnDevice(parts_, Ticket(pass), pass, member);
    if (!Expanded(pass)) AttendCached(parts_, pass, member);
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    if (limits.texts && !ReadsTextsAlone()) return TextScratchBytes(parts_, limits);
    const size_t cached = CachedScratchBytes(parts_, limits);
    if (limits.kv_cache) return cached;
    return std::max(cached, UncachedScratchBytes(parts_.shape, limits.positions()));
  }

  size_t SharedBytes(const PassLimits& limits) const override {
    return CachedSharedBytes(parts_, limits);
  }

  size_t DeviceBytes(const PassLimits& limits) const override {
    const int64_t spans = (limits.context + cuda::kSpanPositions - 1) / cuda::kSpanPositions;
    return DevicePartialBytes(parts_.shape, limits.chunk, spans);
  }

  std::vector<ShareWork> SharesOf(const PassShape& pass, int64_t shares) const override {
    Work all;
    AddWork(pass, all);
    return AttentionShares(parts_.shape, pass, all, shares);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    AddAttentionWork(parts_.shape, pass, work);
  }

  std::string Describe() const override { return DescribeAttention(parts_); }

 private:
  // Whether a pass has one text, without a cache.
  bool ReadsTextsAlone() const { return parts_.is_latent() || parts_.shape.index.has_value(); }

  // Another node computes the pass.
  bool Expanded(const PassContext& pass) const {
    return parts_.is_latent() && FormOf(*parts_.shape.latent, pass) == LatentForm::kExpanded;
  }

  // The number of this call of the device.
  uint64_t Ticket(const PassContext& pass) const {
    return pass.run * kTicketsOfRun + static_cast<uint64_t>(number()) + 1;
  }

  AttentionParts parts_;
};

}  // namespace

std::vector<ValueId> AttentionInput::ids() const {
  std::vector<ValueId> ids = {queries};
  for (const ValueId id : {kv, choice}) {
    if (id != queries && id != kNoValue) ids.push_back(id);
  }
  return ids;
}

std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale, ValueId qkv,
                                    const Activations& out) {
  const AttentionInput in = {qkv, qkv, shape.key_column(), shape.value_column()};
  return MakeAttention(kernels, cache_id, shape, scale, in, out);
}

std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale,
                                    const AttentionInput& in, const Activations& out) {
  return std::make_unique<AttentionNode>(kernels, cache_id, shape, scale, in, out);
}

// Units of the kernel are rows of this many query vectors, so tasks have no fewer heads where the
// number of heads allows it.
constexpr int64_t kTaskHeads = 8;

std::unique_ptr<Node> MakeAbsorbedAttention(const cpu::KernelTable& kernels, int cache_id,
                                            const LatentShape& shape, float scale, ValueId absorbed,
                                            const HeadColumns& kv, ValueId out, ValueId records,
                                            const ChosenBy& chosen) {
  AttentionShape attention;
  int64_t task_heads = std::min(kTaskHeads, shape.heads);
  while (shape.heads % task_heads != 0) --task_heads;
  attention.heads = shape.heads;
  attention.kv_heads = shape.heads / task_heads;
  attention.k_dim = shape.rope;
  attention.v_dim = shape.latent;
  attention.latent = shape;
  attention.index = chosen.index;
  const AttentionInput in = {absorbed, kv.value, kv.first, kv.first, chosen.choice};
  return std::make_unique<AttentionNode>(
      kernels, cache_id, attention, scale, in,
      Activations{.floats = out, .int8 = records, .cols = shape.heads * shape.latent});
}

bool QuantizesAttention(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads * shape.v_dim % 32 == 0;
}

}  // namespace kvant::graph
