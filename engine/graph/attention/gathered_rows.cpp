#include "engine/graph/attention/gathered_rows.h"

#include <cstring>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace kvant::graph {
namespace {

size_t RoundedRows(int64_t rows) {
  return RoundUp(static_cast<size_t>(rows), static_cast<size_t>(cpu::kKeyTileTokens));
}

void CopyKey(KvType type, int dim, const std::byte* from, size_t from_slot, std::byte* to,
             size_t to_slot) {
  cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
      Format::PutKey(to, to_slot, d, Format::Key(from, from_slot, d));
    }
  });
}

void CopyValue(KvType type, int dim, const std::byte* from, size_t from_slot, std::byte* to,
               size_t to_slot) {
  const auto dims = static_cast<size_t>(dim);
  cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    if constexpr (!Format::kHasScales) {  // the numbers of a value are next to each other
      std::memcpy(to + Format::ValuePlace(to_slot, 0, dims),
                  from + Format::ValuePlace(from_slot, 0, dims),
                  cpu::KvRowBytes(Format::kType, dim));
      return;
    }
    for (size_t d = 0; d < dims; ++d) {
      Format::PutValue(to, to_slot, d, dims, Format::Value(from, from_slot, d, dims));
    }
  });
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
  const size_t key_scale = cpu::KvScaleBytes(format.k_type, format.k_dim);
  const size_t value_scale = cpu::KvScaleBytes(format.v_type, format.v_dim);
  size_t copied = 0;
  for (const cpu::KvRun& run : runs) {
    if ((run.rows >> (row % cpu::kMaskedRowsMax) & 1) == 0) continue;
    for (; copied < positions.size() && positions[copied] < run.first_position + run.count;
         ++copied) {
      const auto token = static_cast<size_t>(positions[copied] - run.first_position);
      CopyKey(format.k_type, format.k_dim,
              run.keys + cpu::KeyTileOffset(format.k_type, format.k_dim, token),
              token % cpu::kKeyTileTokens,
              to.keys + cpu::KeyTileOffset(format.k_type, format.k_dim, copied),
              copied % cpu::kKeyTileTokens);
      CopyValue(format.v_type, format.v_dim,
                run.values + cpu::ValueTileOffset(format.v_type, format.v_dim, token),
                token % cpu::kValueTileTokens,
                to.values + cpu::ValueTileOffset(format.v_type, format.v_dim, copied),
                copied % cpu::kValueTileTokens);
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
