#include "engine/graph/attention/gathered_rows.h"

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace kvant::graph {
namespace {

size_t RoundedRows(int64_t rows) {
  return RoundUp(static_cast<size_t>(rows), static_cast<size_t>(cpu::kKeyTileTokens));
}

// The numbers of a key that are next to each other in a tile; those of the next slot follow.
template <class Format>
constexpr size_t NumbersOfSlot() {
  size_t numbers = 1;
  while (Format::KeyPlace(0, numbers) < Format::KeyPlace(1, 0)) ++numbers;
  return numbers;
}

// Copies the keys of `kCount` adjacent slots, or of `count` where that is 0.
template <class Format, size_t kCount>
void CopyKeySlots(size_t dims, const std::byte* from, std::byte* to, size_t count) {
  constexpr size_t kNumbers = NumbersOfSlot<Format>();
  const size_t bytes = (kCount > 0 ? kCount : count) * Format::KeyPlace(1, 0);
  for (size_t d = 0; d < dims; d += kNumbers) {
    std::memcpy(to + Format::KeyPlace(0, d), from + Format::KeyPlace(0, d), bytes);
  }
}

// Where a row lies: in a slot of a tile.
struct TileSlot {
  const std::byte* tile;
  size_t slot;
};
struct TargetSlot {
  std::byte* tile;
  size_t slot;
};

// Copies the keys of `count` adjacent slots; both tiles have so many from these on.
void CopyKeys(KvType type, int dim, const TileSlot& from, const TargetSlot& to, size_t count) {
  const auto dims = static_cast<size_t>(dim);
  cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    const std::byte* first = from.tile + Format::KeyPlace(from.slot, 0);
    std::byte* target = to.tile + Format::KeyPlace(to.slot, 0);
    if (count == 1) return CopyKeySlots<Format, 1>(dims, first, target, count);
    if (count == 4) return CopyKeySlots<Format, 4>(dims, first, target, count);
    CopyKeySlots<Format, 0>(dims, first, target, count);
  });
}

void CopyValue(KvType type, int dim, const TileSlot& from, const TargetSlot& to) {
  const auto dims = static_cast<size_t>(dim);
  cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    if constexpr (!Format::kHasScales) {  // the numbers of a value are next to each other
      std::memcpy(to.tile + Format::ValuePlace(to.slot, 0, dims),
                  from.tile + Format::ValuePlace(from.slot, 0, dims),
                  cpu::KvRowBytes(Format::kType, dim));
      return;
    }
    for (size_t d = 0; d < dims; ++d) {
      Format::PutValue(to.tile, to.slot, d, dims, Format::Value(from.tile, from.slot, d, dims));
    }
  });
}

// How many of the positions from the first one on follow each other, and lie in one key tile both
// where they are, from `token` on, and where they go, from `place` on.
size_t AdjacentInTiles(std::span<const int32_t> positions, size_t token, size_t place) {
  constexpr size_t kTokens = cpu::kKeyTileTokens;
  const size_t most =
      std::min({positions.size(), kTokens - token % kTokens, kTokens - place % kTokens});
  size_t count = 1;
  while (count < most && positions[count] == positions[count - 1] + 1) ++count;
  return count;
}

// The parts of the memory of gathered rows.
struct Parts {
  std::byte* keys;
  std::byte* values;
  std::byte* key_scales;
  std::byte* value_scales;
};
Parts PartsOf(const RowFormat& format, size_t rows, std::byte* memory) {
  Parts parts;
  parts.keys = memory;
  parts.values = parts.keys + RoundUp(cpu::KeyTileOffset(format.k_type, format.k_dim, rows), 64);
  parts.key_scales =
      parts.values + RoundUp(cpu::ValueTileOffset(format.v_type, format.v_dim, rows), 64);
  parts.value_scales =
      parts.key_scales + RoundUp(rows * cpu::KvScaleBytes(format.k_type, format.k_dim), 64);
  return parts;
}

}  // namespace

size_t GatheredBytes(int64_t rows, int64_t k_dim, int64_t v_dim) {
  // No format has larger numbers than f32; dimensions of codes are rounded up to whole words.
  const size_t numbers =
      RoundUp(static_cast<size_t>(k_dim), size_t{4}) + static_cast<size_t>(v_dim);
  return RoundedRows(rows) * (numbers + 2) * sizeof(float) + 4 * 64;
}

cpu::KvRun GatherRows(const RowFormat& format, std::span<const cpu::KvRun> runs, int64_t row,
                      std::span<const int32_t> positions, std::byte* memory) {
  const Parts to = PartsOf(format, RoundedRows(std::ssize(positions)), memory);
  constexpr size_t kKeyTokens = cpu::kKeyTileTokens;
  const size_t key_scale = cpu::KvScaleBytes(format.k_type, format.k_dim);
  const size_t value_scale = cpu::KvScaleBytes(format.v_type, format.v_dim);
  size_t copied = 0;
  for (const cpu::KvRun& run : runs) {
    if ((run.rows >> (row % cpu::kMaskedRowsMax) & 1) == 0) continue;
    const int64_t run_end = run.first_position + run.count;
    size_t keys_until = copied;  // of the keys that are copied already
    for (; copied < positions.size() && positions[copied] < run_end; ++copied) {
      const auto token = static_cast<size_t>(positions[copied] - run.first_position);
      if (copied == keys_until) {
        const auto left = static_cast<size_t>(run_end - positions[copied]);
        const size_t adjacent =
            std::min(left, AdjacentInTiles(positions.subspan(copied), token, copied));
        CopyKeys(
            format.k_type, format.k_dim,
            {run.keys + cpu::KeyTileOffset(format.k_type, format.k_dim, token), token % kKeyTokens},
            {to.keys + cpu::KeyTileOffset(format.k_type, format.k_dim, copied),
             copied % kKeyTokens},
            adjacent);
        keys_until = copied + adjacent;
      }
      CopyValue(format.v_type, format.v_dim,
                {run.values + cpu::ValueTileOffset(format.v_type, format.v_dim, token),
                 token % cpu::kValueTileTokens},
                {to.values + cpu::ValueTileOffset(format.v_type, format.v_dim, copied),
                 copied % cpu::kValueTileTokens});
      const auto copy_scale = [token, copied](const void* scales, std::byte* target, size_t bytes) {
        if (bytes == 0) return;
        std::memcpy(target + copied * bytes, static_cast<const std::byte*>(scales) + token * bytes,
                    bytes);
      };
      copy_scale(run.key_scales, to.key_scales, key_scale);
      copy_scale(run.value_scales, to.value_scales, value_scale);
    }
  }
  KVANT_CHECK(copied == positions.size());
  return {.keys = to.keys,
          .values = to.values,
          .first_position = 0,
          .count = static_cast<int64_t>(copied),
          .key_scales = to.key_scales,
          .value_scales = to.value_scales};
}

}  // namespace kvant::graph
