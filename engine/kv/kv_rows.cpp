// Finds a token's values in key tiles and value tiles (cpu/kernels/attention.h), and copies them
// from and to plain rows.
#include "engine/kv/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "cpu/kv_kernels.h"

namespace kvant::kv {
namespace {

// Where a token's key and value lie in one layer and head; the block is open meanwhile.
struct Spot {
  Spot(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position, Access access)
      : shape(cache.shape(cache.group_of_layer(at.layer))),
        open(cache.Open(at.layer, at.head, entry.id, access)) {
    const size_t token = static_cast<size_t>(position % kBlockTokens);
    const BlockPlace& block = open.place();
    const size_t key_scales = cpu::KvScaleBytes(shape.k_type, shape.k_dim);
    const size_t value_scales = cpu::KvScaleBytes(shape.v_type, shape.v_dim);
    key = {shape.k_type,
           static_cast<size_t>(shape.k_dim),
           token % cpu::kKeyTileTokens,
           block.keys + cpu::KeyTileOffset(shape.k_type, shape.k_dim, token),
           block.key_scales + token * key_scales,
           key_scales};
    value = {shape.v_type,
             static_cast<size_t>(shape.v_dim),
             token % cpu::kValueTileTokens,
             block.values + cpu::ValueTileOffset(shape.v_type, shape.v_dim, token),
             block.value_scales + token * value_scales,
             value_scales};
  }

  // One side, keys or values: the tile that holds the token, and the token's column in it.
  struct Side {
    KvType type;
    size_t dim;
    size_t column;
    std::byte* bytes;
    std::byte* scales;
    size_t scale_bytes;
  };

  const GroupShape& shape;
  OpenBlock open;
  Side key;
  Side value;
};

void CopyScales(size_t bytes, const void* from, void* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

const cpu::KernelTable& KernelsOf(const GroupShape& shape, const cpu::KernelTable& kernels) {
  return cpu::KernelsFor(kernels, shape.k_type, shape.v_type);
}

void AddTimes(float factor, std::span<const float> offset, float* key) {
  for (size_t d = 0; d < offset.size(); ++d) key[d] += factor * offset[d];
}

// A row in canonical form, and its scales.
struct PlainRow {
  PlainRow(KvType type, int dim)
      : elements(cpu::KvRowBytes(type, dim)), scales(cpu::KvScaleBytes(type, dim)) {}

  std::vector<std::byte> elements;
  std::vector<std::byte> scales;
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
                std::byte* elements, void* scales) {
  const Spot spot(cache, at, entry, position, Access::kRead);
  const Spot::Side& key = spot.key;
  cpu::VisitKvFormat(key.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < key.dim; ++d) {
      Format::PutInRow(elements, d, Format::Key(key.bytes, key.column, d));
    }
  });
  CopyScales(key.scale_bytes, key.scales, scales);
}

void WriteKeyRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                 const std::byte* elements, const void* scales) {
  const Spot spot(cache, at, entry, position, Access::kChange);
  const Spot::Side& key = spot.key;
  cpu::VisitKvFormat(key.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < key.dim; ++d) {
      Format::PutKey(key.bytes, key.column, d, Format::InRow(elements, d));
    }
    for (size_t d = key.dim; d < Format::KeyDims(key.dim); ++d) {
      Format::PutKey(key.bytes, key.column, d, typename Format::Number());
    }
  });
  CopyScales(key.scale_bytes, scales, key.scales);
}

void ReadValueRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                  std::byte* elements, void* scales) {
  const Spot spot(cache, at, entry, position, Access::kRead);
  const Spot::Side& value = spot.value;
  cpu::VisitKvFormat(value.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < value.dim; ++d) {
      Format::PutInRow(elements, d, Format::Value(value.bytes, value.column, d, value.dim));
    }
  });
  CopyScales(value.scale_bytes, value.scales, scales);
}

void WriteValueRow(const Cache& cache, CacheHead at, const TableEntry& entry, int64_t position,
                   const std::byte* elements, const void* scales) {
  const Spot spot(cache, at, entry, position, Access::kChange);
  const Spot::Side& value = spot.value;
  cpu::VisitKvFormat(value.type, [&]<class Format>(Format) {
    for (size_t d = 0; d < value.dim; ++d) {
      Format::PutValue(value.bytes, value.column, d, value.dim, Format::InRow(elements, d));
    }
  });
  CopyScales(value.scale_bytes, scales, value.scales);
}

void DecodeRow(KvType type, const std::byte* elements, const void* scales, int64_t dim,
               float* values) {
  cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
      const auto number = static_cast<float>(Format::Decode(Format::InRow(elements, d)));
      if constexpr (Format::kHasScales) {
        values[d] = cpu::KvScaleOf<Format>(scales, d) * number;
      } else {
        values[d] = number;
      }
    }
  });
}

void LoadKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key) {
  const GroupShape& shape = cache.shape(cache.group_of_layer(row.at.layer));
  PlainRow plain(shape.k_type, shape.k_dim);
  ReadKeyRow(cache, row.at, row.entry, row.position, plain.elements.data(), plain.scales.data());
  DecodeRow(shape.k_type, plain.elements.data(), plain.scales.data(), shape.k_dim, key);
  if (shape.rotate_keys) kernels.rotate(key, 1, shape.k_dim);
  AddTimes(1, shape.KeyOffset(row.at.layer, row.at.head), key);
}

void LoadValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value) {
  const GroupShape& shape = cache.shape(cache.group_of_layer(row.at.layer));
  PlainRow plain(shape.v_type, shape.v_dim);
  ReadValueRow(cache, row.at, row.entry, row.position, plain.elements.data(), plain.scales.data());
  DecodeRow(shape.v_type, plain.elements.data(), plain.scales.data(), shape.v_dim, value);
  if (shape.rotate_values) kernels.rotate(value, 1, shape.v_dim);
}

void StoreKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key) {
  const Spot spot(cache, row.at, row.entry, row.position, Access::kChange);
  AddTimes(-1, spot.shape.KeyOffset(row.at.layer, row.at.head), key);
  if (spot.shape.rotate_keys) kernels.rotate(key, 1, spot.shape.k_dim);
  KernelsOf(spot.shape, kernels)
      .store_key(key, spot.shape.k_dim, spot.shape.k_type, static_cast<int>(spot.key.column),
                 spot.key.bytes, spot.key.scales);
}

void StoreValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value) {
  const Spot spot(cache, row.at, row.entry, row.position, Access::kChange);
  if (spot.shape.rotate_values) kernels.rotate(value, 1, spot.shape.v_dim);
  KernelsOf(spot.shape, kernels)
      .store_value(value, spot.shape.v_dim, spot.shape.v_type, static_cast<int>(spot.value.column),
                   spot.value.bytes, spot.value.scales);
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
  PlainRow plain_key(shape.k_type, shape.k_dim);
  PlainRow plain_value(shape.v_type, shape.v_dim);
  for (int head = 0; head < shape.kv_heads; ++head) {
    const CacheHead at{layer, head};
    // Upwards, so that what is overwritten has moved already.
    for (int64_t position = move.begin; position < move.end; ++position) {
      const TableEntry* from = EntryAt(move.from, position + move.distance);
      const TableEntry* to = EntryAt(move.to, position);
      if (from == nullptr || to == nullptr) continue;
      ReadValueRow(cache, at, *from, position + move.distance, plain_value.elements.data(),
                   plain_value.scales.data());
      WriteValueRow(cache, at, *to, position, plain_value.elements.data(),
                    plain_value.scales.data());

      if (frequencies.empty()) {
        ReadKeyRow(cache, at, *from, position + move.distance, plain_key.elements.data(),
                   plain_key.scales.data());
        WriteKeyRow(cache, at, *to, position, plain_key.elements.data(), plain_key.scales.data());
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
