// Finds a token's values in key tiles and value tiles (cpu/kernels/attention.h), and copies them
// from and to plain rows.
#include "engine/kv/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"

namespace kvant::kv {
namespace {

// Where a token's key and value lie in one layer and head; the block is open meanwhile.
struct Spot {
  Spot(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position, Access access)
      : shape(cache.shape(cache.group_of_layer(at.layer))),
        open(cache.Open(at.layer, at.head, entry.id, access)) {
    const size_t token = static_cast<size_t>(position % kBlockTokens);
    const BlockPlace& block = open.place();
    key = {shape.k_type, static_cast<size_t>(shape.k_dim), token % cpu::kKeyTileTokens,
           block.keys + cpu::KeyTileOffset(shape.k_type, shape.k_dim, token),
           block.key_scales + token};
    value = {shape.v_type, static_cast<size_t>(shape.v_dim), token % cpu::kValueTileTokens,
             block.values + cpu::ValueTileOffset(shape.v_type, shape.v_dim, token),
             block.value_scales + token};
  }

  // One side, keys or values: the tile that holds the token, and the token's column in it.
  struct Side {
    KvType type;
    size_t dim;
    size_t column;
    std::byte* bytes;
    float* scale;
  };

  const GroupShape& shape;
  OpenBlock open;
  Side key;
  Side value;
};

}  // namespace

const TableEntry* EntryAt(const BlockTable& table, int64_t position) {
  const int64_t number = position / kBlockTokens;
  const auto found =
      std::lower_bound(table.entries.begin(), table.entries.end(), number,
                       [](const TableEntry& entry, int64_t n) { return entry.number < n; });
  return found != table.entries.end() && found->number == number ? &*found : nullptr;
}

void ReadKeyRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                std::byte* elements, float* scale) {
  const Spot spot(cache, at, entry, position, Access::kRead);
  const Spot::Side& key = spot.key;
  const size_t bytes = cpu::KvNumberBytes(key.type);
  cpu::VisitKvFormat(key.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < key.dim; ++d) {
      std::memcpy(elements + d * bytes, key.bytes + Format::KeyPlace(key.column, d), bytes);
      elements[d * bytes] ^= Format::kKeyFlip;
    }
    *scale = Format::kHasScales ? *key.scale : 0.0f;
  });
}

void WriteKeyRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                 const std::byte* elements, float scale) {
  const Spot spot(cache, at, entry, position, Access::kChange);
  const Spot::Side& key = spot.key;
  const size_t bytes = cpu::KvNumberBytes(key.type);
  cpu::VisitKvFormat(key.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < Format::KeyDims(key.dim); ++d) {
      std::byte* number = key.bytes + Format::KeyPlace(key.column, d);
      if (d < key.dim) {
        std::memcpy(number, elements + d * bytes, bytes);
      } else {
        std::memset(number, 0, bytes);
      }
      *number ^= Format::kKeyFlip;
    }
    if (Format::kHasScales) *key.scale = scale;
  });
}

void ReadValueRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                  std::byte* elements, float* scale) {
  const Spot spot(cache, at, entry, position, Access::kRead);
  const Spot::Side& value = spot.value;
  const size_t bytes = cpu::KvNumberBytes(value.type);
  cpu::VisitKvFormat(value.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < value.dim; ++d) {
      std::memcpy(elements + d * bytes,
                  value.bytes + Format::ValuePlace(value.column, d, value.dim), bytes);
    }
    *scale = Format::kHasScales ? *value.scale : 0.0f;
  });
}

void WriteValueRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                   const std::byte* elements, float scale) {
  const Spot spot(cache, at, entry, position, Access::kChange);
  const Spot::Side& value = spot.value;
  const size_t bytes = cpu::KvNumberBytes(value.type);
  cpu::VisitKvFormat(value.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < value.dim; ++d) {
      std::memcpy(value.bytes + Format::ValuePlace(value.column, d, value.dim),
                  elements + d * bytes, bytes);
    }
    if (Format::kHasScales) *value.scale = scale;
  });
}

void DecodeRow(KvType type, const std::byte* elements, float scale, int64_t dim, float* values) {
  const size_t bytes = cpu::KvNumberBytes(type);
  cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
      const auto number = static_cast<float>(Format::ValueNumber(elements + d * bytes));
      values[d] = Format::kHasScales ? scale * number : number;
    }
  });
}

void LoadKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key) {
  const GroupShape& shape = cache.shape(cache.group_of_layer(row.at.layer));
  std::vector<std::byte> elements(static_cast<size_t>(shape.k_dim) * sizeof(float));
  float scale = 0.0f;
  ReadKeyRow(cache, row.at, row.entry, row.position, elements.data(), &scale);
  DecodeRow(shape.k_type, elements.data(), scale, shape.k_dim, key);
  if (shape.rotate_keys) kernels.rotate(key, 1, shape.k_dim);
}

void LoadValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value) {
  const GroupShape& shape = cache.shape(cache.group_of_layer(row.at.layer));
  std::vector<std::byte> elements(static_cast<size_t>(shape.v_dim) * sizeof(float));
  float scale = 0.0f;
  ReadValueRow(cache, row.at, row.entry, row.position, elements.data(), &scale);
  DecodeRow(shape.v_type, elements.data(), scale, shape.v_dim, value);
  if (shape.rotate_values) kernels.rotate(value, 1, shape.v_dim);
}

void StoreKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key) {
  const Spot spot(cache, row.at, row.entry, row.position, Access::kChange);
  if (spot.shape.rotate_keys) kernels.rotate(key, 1, spot.shape.k_dim);
  kernels.store_key(key, spot.shape.k_dim, spot.shape.k_type, static_cast<int>(spot.key.column),
                    spot.key.bytes, spot.key.scale);
}

void StoreValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value) {
  const Spot spot(cache, row.at, row.entry, row.position, Access::kChange);
  if (spot.shape.rotate_values) kernels.rotate(value, 1, spot.shape.v_dim);
  kernels.store_value(value, spot.shape.v_dim, spot.shape.v_type,
                      static_cast<int>(spot.value.column), spot.value.bytes, spot.value.scale);
}

void MoveRows(const Cache& cache, const cpu::KernelTable& kernels, int layer, const RowMove& move,
              std::span<const float> frequencies, cpu::RopeStyle style) {
  const GroupShape& shape = cache.shape(cache.group_of_layer(layer));
  std::vector<float> turn;  // cosines, then sines, of the angles back
  for (const float frequency : frequencies) {
    turn.push_back(static_cast<float>(
        std::cos(static_cast<double>(move.distance) * static_cast<double>(frequency))));
  }
  for (const float frequency : frequencies) {
    turn.push_back(static_cast<float>(
        -std::sin(static_cast<double>(move.distance) * static_cast<double>(frequency))));
  }
  std::vector<float> key(static_cast<size_t>(shape.k_dim));
  std::vector<std::byte> elements(static_cast<size_t>(std::max(shape.k_dim, shape.v_dim)) *
                                  sizeof(float));
  for (int head = 0; head < shape.kv_heads; ++head) {
    const CacheHead at{layer, head};
    // Upwards, so that what is overwritten has moved already.
    for (int64_t position = move.begin; position < move.end; ++position) {
      const TableEntry* from = EntryAt(move.from, position + move.distance);
      const TableEntry* to = EntryAt(move.to, position);
      if (from == nullptr || to == nullptr) continue;
      float scale = 0.0f;
      ReadValueRow(cache, at, *from, position + move.distance, elements.data(), &scale);
      WriteValueRow(cache, at, *to, position, elements.data(), scale);

      if (frequencies.empty()) {
        ReadKeyRow(cache, at, *from, position + move.distance, elements.data(), &scale);
        WriteKeyRow(cache, at, *to, position, elements.data(), scale);
        continue;
      }
      LoadKey(cache, kernels, {at, *from, position + move.distance}, key.data());
      kernels.rope(key.data(), 1, shape.k_dim, 2 * static_cast<int64_t>(frequencies.size()), style,
                   turn.data());
      StoreKey(cache, kernels, {at, *to, position}, key.data());
    }
  }
}

}  // namespace kvant::kv
