// The contents of a KV cache as plain tensors, to exchange with other programs, in the layouts and
// under the names that Hugging Face transformers and ONNX Runtime use.
//
//   bhsd   past_key_values.N.key and past_key_values.N.value, each [batch, kv head, position, dim]
//   kbhsd  past_N, keys and values in one: [2, batch, kv head, position, dim]
//   bkhsd  past_N: [batch, 2, kv head, position, dim]
// N counts layers from 0. Keys are those after the rotary embedding. It rotates the pairs of values
// i and i + n / 2 of a head, whatever the model file has. Int8 keys and values, which the cache
// stores rotated (cpu::KernelTable::rotate), are rotated back. A layer with a window W has the last
// W - 1 positions. A layer whose attention ends at sections of W positions has the positions of the
// section that the next token is in. These are the positions that the next token sees. All values
// are float32: exact for f32 and f16 caches; int8 caches quantize them again on import.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

enum class KvLayout : uint8_t { kBhsd, kKbhsd, kBkhsd };

// Reads "bhsd", "kbhsd" or "bkhsd"; kInvalid names the three.
Result<KvLayout> ParseKvLayout(std::string_view name);

struct KvTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct KvTensors {
  std::vector<std::vector<TokenId>> tokens;  // [batch][length], all of one length
  std::vector<KvTensor> tensors;

  // Null if there is none of this name.
  const KvTensor* Find(std::string_view name) const;
};

// As a safetensors file: float32 tensors, and the tokens as "input_ids", int64 [batch, length].
// kIo; kCorrupt names a tensor of another type or shape. A file appears whole or not at all.
Status WriteKvTensors(const std::string& path, const KvTensors& tensors);
Result<KvTensors> ReadKvTensors(const std::string& path);

}  // namespace kvant
