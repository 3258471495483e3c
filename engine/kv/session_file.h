// Sequences on disk: their tokens and cache rows, so that a later process continues with the same
// bits.
//
// Little-endian. Every section is followed by the XXH64 of its bytes.
//   header    "kvantses", u32 version, u32 number of groups, u64 fingerprint of the model,
//             per group: i64 window, i32 kv_heads, k_dim, v_dim, k_type, v_type, rotate_keys,
//             rotate_values, layers, then each layer's i32; u32 number of sequences
//   sequence  i64 length, u8 flags (1: has logits, 2: the rows are what the tokens alone give), u32
//             pruned ranges and their i64 pairs, i32 tokens[length], f32 logits[vocab] where
//             flagged, then per group
//             i64 first position, u32 entries and per entry i64 number, u32 index of the block
//   blocks    per group: u32 number of blocks, each with its rows: u32 rows, then for each layer
//             keys and values of each head as [rows][dim] numbers (f32, f16, or i8) and f32 scales
//             [rows] for i8
// Blocks that sequences share are written once. Rows are in plain order, so that a file does not
// depend on tiles, block numbers or instruction sets. A block of a state group is the state of each
// layer as 32-bit floats; a table's entries are its checkpoints and the present state, by length.
//
// A file appears whole or not at all. Loading refuses a file that is truncated, changed, of another
// model, or of a cache with other types or groups, and then loads nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/kv/kv_cache.h"
#include "kvant/token_id.h"

namespace kvant::kv {

inline constexpr std::array<char, 8> kSessionMagic = {'k', 'v', 'a', 'n', 't', 's', 'e', 's'};
inline constexpr uint32_t kSessionVersion = 1;
// Flags of a sequence.
inline constexpr uint8_t kSessionHasLogits = 1;
inline constexpr uint8_t kSessionGivenByTokens = 2;
// A group's numbers in the header, from kv_heads to its number of layers.
std::array<int32_t, 8> SessionShape(const GroupShape& shape);

// What a file holds of a sequence.
struct SavedSequence {
  const Sequence* kv;
  std::span<const TokenId> tokens;
  std::span<const float> logits;  // empty where there are none
  bool given_by_tokens;           // the cache holds what these tokens alone give
};

struct LoadedSequence {
  Sequence kv;
  std::vector<TokenId> tokens;
  std::vector<float> logits;
  bool given_by_tokens = true;
};

Status WriteSessionFile(const std::string& path, uint64_t fingerprint, const Cache& cache,
                        std::span<const SavedSequence> sequences);

// Takes blocks from the cache for what the file holds. kCorrupt, kNotSupported (another model or
// other types), kContextFull, kOutOfMemory; the cache is as before then.
Result<std::vector<LoadedSequence>> ReadSessionFile(const std::string& path, uint64_t fingerprint,
                                                    int64_t vocab, Cache& cache);

}  // namespace kvant::kv
