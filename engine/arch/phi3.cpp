// Phi-3 and Phi-3.5: the Llama layer with fused qkv and fused gate/up matrices, rotary embedding
// over halves and a sliding window in every layer.
#include "engine/arch/arch_spec.h"

namespace kvant::arch {
namespace {

// Files from before the window was stored are known by their shape: the 4k models use 2047
// positions, the 128k models their whole context. Source: the models' config.json
// ("sliding_window") at the time of their release.
constexpr int64_t kWindow4k = 2047;

Status AdjustPhi3(const formats::GgufFile& file, ArchSpec& spec) {
  if (file.Find("phi3.attention.sliding_window") != nullptr) return {};
  const bool released_shape = spec.layers.size() == 32 || spec.layers.size() == 40;
  if (released_shape && spec.context_train == 4096) {
    for (LayerSpec& layer : spec.layers) layer.window = kWindow4k;
  }
  return {};
}

}  // namespace

extern const ArchFamily kPhi3Family;
const ArchFamily kPhi3Family = {
    .name = "phi3",
    .rope_style = cpu::RopeStyle::kHalves,
    .qkv = Packing::kFused,
    .gate_up = Packing::kFused,
    .adjust = AdjustPhi3,
};

}  // namespace kvant::arch
