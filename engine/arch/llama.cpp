// Llama 1 to 3, Mistral, TinyLlama and everything that is stored as "llama": pre-norm RMS layers,
// rotary embedding over interleaved pairs (the conversion permutes q and k so), SwiGLU.
#include "engine/arch/arch_spec.h"

namespace kvant::arch {

extern const ArchFamily kLlamaFamily;
const ArchFamily kLlamaFamily = {
    .name = "llama",
    .rope_style = cpu::RopeStyle::kInterleaved,
    .qkv = Packing::kSeparate,
    .gate_up = Packing::kSeparate,
    .adjust = nullptr,
};

}  // namespace kvant::arch
