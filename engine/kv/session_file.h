// Sequences on disk: their tokens and cache rows, so that a later process continues with the same
// bits.
//
// Little-endian. Every section is followed by the XXH64 of its bytes.
//   header    "kvantses", u32 version, u32 number of groups, u64 fingerprint of the model,
//             per group: i64 window, i32 kv_heads, k_dim, v_dim, k_type, v_type, rotate_keys,
//             rotate_values, layers, then each layer's i32; u32 number of sequences; with sources
//             u32 number of sources, u8 whether their rows are in the file; in version 3 u32 number
//             of row blocks
//   source    with sources: u8 kind (1: tokens, 2: frames), i64 positions, u64 bytes of the input
//             of the encoder, the input (i32 ids or f32 numbers), u64 its XXH64
//   row block version 3: i64 rows, from 1, f32 [rows][dim] finite numbers. The rows of all blocks
//             have the ids behind the vocabulary in the order of the file; loading renumbers them
//   sequence  i64 length, u8 flags (1: has logits, 2: the rows are what the tokens alone give),
//             with sources u32 number of its source from 1 (0: it has none), u32
//             pruned ranges and their i64 pairs, i32 tokens[length], f32 logits[vocab] where
//             flagged, then per group that does not hold sources
//             i64 first position, u32 entries and per entry i64 number, u32 index of the block
//   blocks    per group: u32 number of blocks, each with its rows: u32 rows, then for each layer
//             keys and values of each head as [rows] plain rows of numbers, and [rows] of scales
//             where the type has some (cpu/kv_format_list.h): for q8 [rows][dim] bytes, and an f32
//             each. Groups of sources have none here
//   rows      with sources, where the header says so: for each source, for each group that holds
//             sources, its blocks in order, each as above
//   note      where bytes are left: u32 bytes of a text of the caller's, and the text
// Files of models with an encoder, whose sequences may have sources, are of version 2, others of
// version 1; files with row blocks (engine/kv/row_blocks.h) are of version 3, with sources where
// the model has an encoder. Sequences of one source refer to the same number. Without their rows
// sources are encoded again. Blocks that sequences share are written once. Rows are in plain order,
// so that a file does not depend on tiles, block numbers or instruction sets. A block of a state
// group is the state of each layer as 32-bit floats; a table's entries are its checkpoints and the
// present state, by length.
//
// A file appears whole or not at all. Loading refuses a file that is truncated, changed, of another
// model, or of a cache with other types or groups, and then loads nothing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/kv_cache.h"
#include "kvant/token_id.h"

namespace kvant::kv {

inline constexpr std::array<char, 8> kSessionMagic = {'k', 'v', 'a', 'n', 't', 's', 'e', 's'};
inline constexpr uint32_t kSessionVersion = 1;
inline constexpr uint32_t kSessionVersionOfSources = 2;
inline constexpr uint32_t kSessionVersionOfRows = 3;
// The version of a cache's files without row blocks.
uint32_t SessionVersion(const Cache& cache);
// Whether files of the cache have sources.
inline bool HasSources(const Cache& cache) { return cache.source() > 0; }
// Flags of a sequence.
inline constexpr uint8_t kSessionHasLogits = 1;
inline constexpr uint8_t kSessionGivenByTokens = 2;
// A group's numbers in the header, from kv_heads to its number of layers.
std::array<int32_t, 8> SessionShape(const GroupShape& shape);

// The input of an encoder.
enum class SourceKind : uint8_t { kTokens = 1, kFrames = 2 };

struct SavedSource {
  SourceKind kind;
  std::span<const std::byte> input;  // ids or floats
  uint64_t hash;                     // XXH64 of the input
  const Sequence* holder;            // a sequence whose tables refer to its rows
};

struct LoadedSource {
  SourceKind kind = SourceKind::kTokens;
  std::vector<std::byte> input;
  std::optional<Source> rows;  // nothing: the file has none
};

// The contents of a file for one sequence.
struct SavedSequence {
  const Sequence* kv;
  std::span<const TokenId> tokens;
  std::span<const float> logits;  // empty where there are none
  bool given_by_tokens;           // the cache holds what these tokens alone give
  uint32_t source = 0;            // the number of its source in the file from 1; 0: it has none
};

struct LoadedSequence {
  Sequence kv;
  std::vector<TokenId> tokens;
  std::vector<float> logits;
  bool given_by_tokens = true;
  uint32_t source = 0;  // as in SavedSequence; the tables do not refer to its rows yet
};

struct SavedSession {
  std::span<const SavedSource> sources;
  bool source_rows = true;  // the rows of sources are in the file
  std::span<const SavedSequence> sequences;
  // [rows][dim] each; the tokens of sequences have ids as in the file.
  std::span<const std::span<const float>> row_blocks = {};
  std::string_view note = {};
};

struct LoadedSession {
  std::vector<LoadedSource> sources;
  std::vector<LoadedSequence> sequences;
  std::vector<std::vector<float>> row_blocks;  // as in SavedSession, and so are ids
  std::string note = {};
};

// Gives back what a file was read into.
void FreeLoaded(LoadedSession& session, Cache& cache);

// Says of an input whether the model's encoder reads it, and how many positions it makes of it.
using SourceCheck =
    std::function<Result<int64_t>(SourceKind kind, std::span<const std::byte> input)>;

// The model of a session.
struct SessionModel {
  uint64_t fingerprint;
  int64_t vocab;
  int64_t row_dim = 0;  // floats of a row of a row block; 0: the model takes none
};

Status WriteSessionFile(const std::string& path, const SessionModel& model, const Cache& cache,
                        const SavedSession& session);

// Takes blocks from the cache for what the file holds. kCorrupt, kNotSupported (another model or
// other types), kContextFull, kOutOfMemory; the cache is as before then.
Result<LoadedSession> ReadSessionFile(const std::string& path, const SessionModel& model,
                                      const SourceCheck& check_source, Cache& cache);

}  // namespace kvant::kv
