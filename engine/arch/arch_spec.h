// What a model family is, as data: the one layer walker (engine/arch/walker.h) builds every family
// from it.
//
// ArchFamily is the row a family's file defines; ArchSpec is that row together with one file's
// metadata. To add a family: a file engine/arch/<name>.cpp with its row, and one line in
// engine/arch/arch_list.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/graph/nodes.h"
#include "engine/graph/rope.h"
#include "formats/gguf.h"

namespace kvant::arch {

// How a file stores matrices that belong together.
enum class Packing : uint8_t {
  kSeparate,  // attn_q, attn_k, attn_v; ffn_gate, ffn_up
  kFused,     // attn_qkv (rows of q, k, v); ffn_up (rows of gate, then up)
};

using graph::RopeSpec;

struct LayerSpec {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t ffn = 0;
  int64_t window = 0;  // positions a query sees, itself included; 0 = all
  size_t rope = 0;     // index into ArchSpec::ropes
};

struct ArchFamily;

struct ArchSpec {
  const ArchFamily* family = nullptr;
  int64_t dim = 0;
  int64_t vocab = 0;
  int64_t context_train = 0;
  float norm_epsilon = 0;
  float embedding_scale = 1;
  float attention_scale = 0;    // of queries times keys; 0 = 1 / sqrt(k_dim)
  std::vector<RopeSpec> ropes;  // [0] is what the metadata say; a family may add others
  std::vector<LayerSpec> layers;
};

struct ArchFamily {
  std::string_view name;  // general.architecture
  cpu::RopeStyle rope_style;
  Packing qkv;
  Packing gate_up;
  graph::Gate gate = graph::Gate::kSilu;
  bool qk_norms = false;    // an RMS norm over each head's query and key before the rotation
  bool post_norms = false;  // RMS norms of what attention and feed-forward add to the stream
  // Corrects the spec where a family's metadata need it; may be null.
  Status (*adjust)(const formats::GgufFile& file, ArchSpec& spec);
};

// All families, in the order of engine/arch/arch_list.cpp.
std::span<const ArchFamily* const> AllFamilies();

// Reads and checks the metadata of a file whose architecture is known. kNotSupported for an unknown
// one, with the list of known ones, and for features that the family's walker lacks; kCorrupt for
// missing or contradicting keys.
Result<ArchSpec> ReadSpec(const formats::GgufFile& file);

}  // namespace kvant::arch
