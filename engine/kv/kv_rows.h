// Single rows of the cache in canonical form: the numbers of one key or value in order, as they are
// not in tiles. For exports, session files and moving tokens; passes use PassView.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/kernels/rope.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_cache.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::kv {

// A kv head of a cache layer.
struct CacheHead {
  int layer;  // its cache id
  int head;
};

// The table entry that holds a position, or null.
const TableEntry* EntryAt(const BlockTable& table, int64_t position);

// The stored values of a token that `entry` holds, bit for bit: `elements` are cpu::KvRowBytes of
// k_dim or v_dim numbers of the group's type in order, `scales` their cpu::KvScaleBytes, unused
// where the type has none.
void ReadKeyRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                std::byte* elements, void* scales);
void ReadValueRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                  std::byte* elements, void* scales);
void WriteKeyRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                 const std::byte* elements, const void* scales);
void WriteValueRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                   const std::byte* elements, const void* scales);

// Canonical elements as floats. Rows of a group with rotate_keys or rotate_values stay rotated, and
// keys stay without their offset.
void DecodeRow(KvType type, const std::byte* elements, const void* scales, int64_t dim,
               float* values);

// A token's place in a cache layer and head.
struct Row {
  CacheHead at;
  const TableEntry& entry;
  int64_t position;
};

// The key or value as floats, rotated back where the group stores it rotated, with its offset.
void LoadKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key);
void LoadValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value);

// Stores as a pass does: shifts and rotates (in place) and rounds or quantizes.
void StoreKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key);
void StoreValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value);

// Tokens that move to earlier positions.
struct RowMove {
  const BlockTable& from;
  const BlockTable& to;  // may be `from`
  int64_t begin;  // positions [begin, end) of `to` receive what is `distance` later in `from`
  int64_t end;
  int64_t distance;
};

// Moves a layer's rows: values as they are, keys rotated back by `distance` positions, which rounds
// them once more (with scales: quantizes them again). `frequencies` are the layer's [n_rot / 2]
// radians per position; none where it has no rope: its keys then move as they are, to the bit.
void MoveRows(const Cache& cache, const cpu::KernelTable& kernels, int layer, const RowMove& move,
              std::span<const float> frequencies, cpu::RopeStyle style);

}  // namespace kvant::kv
