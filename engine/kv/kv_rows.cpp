// Places of a token's numbers in tiles and groups (cpu/kernels.h), and copying between these and
// plain rows.
#include "engine/kv/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"

namespace kvant::kv {
namespace {

// Where a block lies in its lanes, and a token in the block.
struct Spot {
  Spot(const Cache& cache, Lane lane, const TableEntry& entry, int64_t position)
      : shape(cache.shape(cache.group_of_layer(lane.layer))),
        token(static_cast<size_t>(position % kBlockTokens)) {
    const BlockPlace block = cache.LanesOf(lane.layer, lane.head).At(entry.id);
    tile =
        block.keys + token / cpu::kKeyTileTokens * cpu::KvKeyTileBytes(shape.k_type, shape.k_dim);
    group = block.values +
            token / cpu::kValueGroupTokens * cpu::KvValueGroupBytes(shape.v_type, shape.v_dim);
    key_scale = block.key_scales + token;
    value_scale = block.value_scales + token;
  }

  // Bytes from the tile's begin to number d of the key, and from the group's begin to that of the
  // value.
  size_t KeyOffset(size_t d) const {
    const size_t slot = token % cpu::kKeyTileTokens;
    if (shape.k_type == cpu::KvElement::kQ8)
      return (d / 4 * cpu::kKeyTileTokens + slot) * 4 + d % 4;
    return (d * cpu::kKeyTileTokens + slot) * cpu::KvElementBytes(shape.k_type);
  }
  size_t ValueOffset(size_t d) const {
    const size_t slot = token % cpu::kValueGroupTokens;
    if (shape.v_type == cpu::KvElement::kQ8) return d * cpu::kValueGroupTokens + slot;
    return (slot * static_cast<size_t>(shape.v_dim) + d) * cpu::KvElementBytes(shape.v_type);
  }

  const GroupShape& shape;
  size_t token;
  std::byte* tile;
  std::byte* group;
  float* key_scale;
  float* value_scale;
};

// Keys of q8 are stored as code + 128, canonical ones as signed codes.
constexpr std::byte kKeyBias{0x80};

}  // namespace

const TableEntry* EntryAt(const BlockTable& table, int64_t position) {
  const int64_t number = position / kBlockTokens;
  const auto found =
      std::lower_bound(table.entries.begin(), table.entries.end(), number,
                       [](const TableEntry& entry, int64_t n) { return entry.number < n; });
  return found != table.entries.end() && found->number == number ? &*found : nullptr;
}

void ReadKeyRow(const Cache& cache, Lane lane, const TableEntry& entry, int64_t position,
                std::byte* elements, float* scale) {
  const Spot spot(cache, lane, entry, position);
  const bool q8 = spot.shape.k_type == cpu::KvElement::kQ8;
  const size_t bytes = cpu::KvElementBytes(spot.shape.k_type);
  for (size_t d = 0; d < static_cast<size_t>(spot.shape.k_dim); ++d) {
    std::memcpy(elements + d * bytes, spot.tile + spot.KeyOffset(d), bytes);
    if (q8) elements[d] ^= kKeyBias;
  }
  *scale = q8 ? *spot.key_scale : 0.0f;
}

void WriteKeyRow(const Cache& cache, Lane lane, const TableEntry& entry, int64_t position,
                 const std::byte* elements, float scale) {
  const Spot spot(cache, lane, entry, position);
  const bool q8 = spot.shape.k_type == cpu::KvElement::kQ8;
  const size_t bytes = cpu::KvElementBytes(spot.shape.k_type);
  const size_t dim = static_cast<size_t>(spot.shape.k_dim);
  for (size_t d = 0; d < dim; ++d) {
    std::memcpy(spot.tile + spot.KeyOffset(d), elements + d * bytes, bytes);
    if (q8) spot.tile[spot.KeyOffset(d)] ^= kKeyBias;
  }
  if (!q8) return;
  for (size_t d = dim; d % 4 != 0; ++d) spot.tile[spot.KeyOffset(d)] = kKeyBias;
  *spot.key_scale = scale;
}

void ReadValueRow(const Cache& cache, Lane lane, const TableEntry& entry, int64_t position,
                  std::byte* elements, float* scale) {
  const Spot spot(cache, lane, entry, position);
  const size_t bytes = cpu::KvElementBytes(spot.shape.v_type);
  for (size_t d = 0; d < static_cast<size_t>(spot.shape.v_dim); ++d) {
    std::memcpy(elements + d * bytes, spot.group + spot.ValueOffset(d), bytes);
  }
  *scale = spot.shape.v_type == cpu::KvElement::kQ8 ? *spot.value_scale : 0.0f;
}

void WriteValueRow(const Cache& cache, Lane lane, const TableEntry& entry, int64_t position,
                   const std::byte* elements, float scale) {
  const Spot spot(cache, lane, entry, position);
  const size_t bytes = cpu::KvElementBytes(spot.shape.v_type);
  for (size_t d = 0; d < static_cast<size_t>(spot.shape.v_dim); ++d) {
    std::memcpy(spot.group + spot.ValueOffset(d), elements + d * bytes, bytes);
  }
  if (spot.shape.v_type == cpu::KvElement::kQ8) *spot.value_scale = scale;
}

void DecodeRow(cpu::KvElement type, const std::byte* elements, float scale, int64_t dim,
               float* values) {
  for (int64_t d = 0; d < dim; ++d) {
    switch (type) {
      case cpu::KvElement::kF32: values[d] = reinterpret_cast<const float*>(elements)[d]; break;
      case cpu::KvElement::kF16:
        values[d] = F16ToF32(reinterpret_cast<const uint16_t*>(elements)[d]);
        break;
      case cpu::KvElement::kQ8:
        values[d] = scale * static_cast<float>(static_cast<int8_t>(elements[d]));
        break;
    }
  }
}

void LoadKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key) {
  const GroupShape& shape = cache.shape(cache.group_of_layer(row.lane.layer));
  std::vector<std::byte> elements(static_cast<size_t>(shape.k_dim) * sizeof(float));
  float scale = 0.0f;
  ReadKeyRow(cache, row.lane, row.entry, row.position, elements.data(), &scale);
  DecodeRow(shape.k_type, elements.data(), scale, shape.k_dim, key);
  if (shape.rotate_keys) kernels.rotate(key, 1, shape.k_dim);
}

void LoadValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value) {
  const GroupShape& shape = cache.shape(cache.group_of_layer(row.lane.layer));
  std::vector<std::byte> elements(static_cast<size_t>(shape.v_dim) * sizeof(float));
  float scale = 0.0f;
  ReadValueRow(cache, row.lane, row.entry, row.position, elements.data(), &scale);
  DecodeRow(shape.v_type, elements.data(), scale, shape.v_dim, value);
  if (shape.rotate_values) kernels.rotate(value, 1, shape.v_dim);
}

void StoreKey(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* key) {
  const Spot spot(cache, row.lane, row.entry, row.position);
  if (spot.shape.rotate_keys) kernels.rotate(key, 1, spot.shape.k_dim);
  kernels.store_key(key, spot.shape.k_dim, spot.shape.k_type,
                    static_cast<int>(spot.token % cpu::kKeyTileTokens), spot.tile, spot.key_scale);
}

void StoreValue(const Cache& cache, const cpu::KernelTable& kernels, const Row& row, float* value) {
  const Spot spot(cache, row.lane, row.entry, row.position);
  if (spot.shape.rotate_values) kernels.rotate(value, 1, spot.shape.v_dim);
  kernels.store_value(value, spot.shape.v_dim, spot.shape.v_type,
                      static_cast<int>(spot.token % cpu::kValueGroupTokens), spot.group,
                      spot.value_scale);
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
  std::vector<std::byte> elements(static_cast<size_t>(shape.v_dim) * sizeof(float));
  for (int head = 0; head < shape.kv_heads; ++head) {
    const Lane lane{layer, head};
    // Upwards, so that what is overwritten has moved already.
    for (int64_t position = move.begin; position < move.end; ++position) {
      const TableEntry* from = EntryAt(move.from, position + move.distance);
      const TableEntry* to = EntryAt(move.to, position);
      if (from == nullptr || to == nullptr) continue;
      float scale = 0.0f;
      ReadValueRow(cache, lane, *from, position + move.distance, elements.data(), &scale);
      WriteValueRow(cache, lane, *to, position, elements.data(), scale);

      LoadKey(cache, kernels, {lane, *from, position + move.distance}, key.data());
      kernels.rope(key.data(), 1, shape.k_dim, 2 * static_cast<int64_t>(frequencies.size()), style,
                   turn.data());
      StoreKey(cache, kernels, {lane, *to, position}, key.data());
    }
  }
}

}  // namespace kvant::kv
