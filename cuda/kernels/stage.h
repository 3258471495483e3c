// What an attention brings into shared memory: its queries as halves, and a block of the cache at a
// time, in the layout of the tensor cores.
#pragma once

#include "cuda/kernels/store.h"

namespace kvant::cuda {

KVANT_GPU int FirstVisible(Window kind, int window, int position) {
  if (window == 0) return 0;
  if (kind == Window::kSections) return position - position % window;
  return position < window ? 0 : position - window + 1;
}

// A row of a warp's tile of queries, of which a thread has two: lane / 4 and lane / 4 + 8.
struct QueryRow {
  int32_t row;   // of the piece; -1: there is no query
  int32_t head;  // of all heads
  int32_t position;
  int32_t first;  // the first position that it sees
};

// One kind of keys or values of a stage, as they lie in memory and in shared memory.
template <class Block>
KVANT_GPU void CopyBytes(Block& block, std::byte* to, const std::byte* from, int bytes) {
  block.Each([&](int t) {
    for (int i = t * 16; i < bytes; i += kThreads * 16) Block::CopyAhead(to + i, from + i);
  });
}

// Where a stage's keys, values and scales are, as the products read them.
struct Tiles {
  const Half* keys;
  const Half* values;
  const float* key_scales;  // null: there are none
};

KVANT_GPU Tiles TilesOf(const LayerBlocks& blocks, const SharedLayout& at, const std::byte* stage,
                        const std::byte* converted) {
  const bool k_codes = blocks.k_element == Element::kInt8;
  const bool v_codes = blocks.v_element == Element::kInt8;
  Tiles tiles;
  tiles.keys = reinterpret_cast<const Half*>(k_codes ? converted : stage);
  tiles.values = reinterpret_cast<const Half*>(v_codes ? converted + (k_codes ? at.keys : 0)
                                                       : stage + (k_codes ? at.raw_keys : at.keys));
  tiles.key_scales =
      k_codes ? reinterpret_cast<const float*>(stage + at.stage - at.scales) : nullptr;
  return tiles;
}

// The number of the first entry that begins at `position` or later.
KVANT_GPU int FirstEntryFrom(const Entry* entries, const Piece& piece, int position) {
  int low = piece.entries_begin;
  int high = piece.entries_end;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (entries[middle].position < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The number of the first entry of the piece that reaches beyond `position`.
KVANT_GPU int FirstEntry(const Entry* entries, const Piece& piece, int position) {
  return FirstEntryFrom(entries, piece, position / kBlockPositions * kBlockPositions);
}

KVANT_GPU QueryRow RowOf(const AttentionParams& p, const Piece& piece, int kv_head, int first_query,
                         int queries, int number) {
  if (number >= queries) return {-1, 0, 0, 0};
  const int query = first_query + number;
  const int row = query / p.heads_per_kv;
  const int position = p.tables.positions[piece.first_row + row];
  return {row, kv_head * p.heads_per_kv + query % p.heads_per_kv, position,
          FirstVisible(p.window_kind, p.window, position)};
}

// Queries become halves, times the scale; what there is no query for is zeros.
template <class Block>
KVANT_GPU void StageQueries(Block& block, const AttentionParams& p, const SharedLayout& at,
                            const Piece& piece, int first_query, int queries) {
  Half* to = reinterpret_cast<Half*>(block.shared);
  const int k_dim = p.blocks.k_dim;
  block.Each([&](int t) {
    for (int i = t; i < kTileQueries * at.k_padded; i += kThreads) {
      const int number = i / at.k_padded;
      const int d = i % at.k_padded;
      float value = 0.0f;
      if (number < queries && d < k_dim) {
        const int query = first_query + number;
        const int row = piece.first_row + query / p.heads_per_kv;
        const int head = block.y * p.heads_per_kv + query % p.heads_per_kv;
        value = p.scale * p.input[row * p.input_stride + head * k_dim + d];
      }
      to[number * at.query_stride + d] = ToFiniteHalf(value);
    }
  });
}

// Whether a position of a block has a key and a value. Where all its rows must not see it there
// may be anything.
KVANT_GPU bool IsWritten(const AttentionParams& p, const Piece& piece, const Entry& entry,
                         int slot) {
  if (slot >= entry.count) return false;
  for (int h = piece.hidden_begin; h < piece.hidden_end; ++h) {
    const Hidden& hidden = p.tables.hidden[h];
    const int position = entry.position + slot;
    if (position >= hidden.begin && position < hidden.end && (entry.rows & ~hidden.rows) == 0) {
      return false;
    }
  }
  return true;
}

// Begins to copy a block's keys, values and scales of the kv head.
template <class Block>
KVANT_GPU void Stage(Block& block, const AttentionParams& p, const SharedLayout& at,
                     const Piece& piece, const Entry& entry, std::byte* stage) {
  const LayerBlocks& from = p.blocks;
  const std::byte* bytes = from.memory + static_cast<uint64_t>(entry.block) * from.block_bytes;
  const int head = block.y;
  std::byte* to = stage;
  const std::byte* keys = bytes + from.keys;
  if (from.k_element == Element::kInt8) {
    CopyBytes(block, to, keys + head * static_cast<int>(at.raw_keys),
              static_cast<int>(at.raw_keys));
    to += at.raw_keys;
  } else {
    const std::byte* tile = keys + static_cast<int64_t>(head) * kBlockPositions * from.k_dim * 2;
    // Chunks of 8 positions of a dimension: four of them beside each other.
    block.Each([&](int t) {
      for (int i = t; i < from.k_dim * 4; i += kThreads) {
        const int part = i % 4;
        const int d = i / 4;
        Block::CopyAhead(
            to + (d * kKeyStride + part * 8) * 2,
            tile + ((part / 2 * from.k_dim + d) * kKeyTilePositions + part % 2 * 8) * 2);
      }
      // What pads the dimensions meets queries of zeros, and must be a number.
      for (int i = from.k_dim * kKeyStride + t; i < at.k_padded * kKeyStride; i += kThreads) {
        reinterpret_cast<Half*>(to)[i] = 0;
      }
    });
    to += at.keys;
  }
  const std::byte* values = bytes + from.values;
  if (from.v_element == Element::kInt8) {
    CopyBytes(block, to, values + head * static_cast<int>(at.raw_values),
              static_cast<int>(at.raw_values));
    to += at.raw_values;
  } else {
    const std::byte* rows = values + static_cast<int64_t>(head) * kBlockPositions * from.v_dim * 2;
    const int chunks = from.v_dim / 8;
    block.Each([&](int t) {
      for (int i = t; i < kBlockPositions * chunks; i += kThreads) {
        const int position = i / chunks;
        const int d = i % chunks * 8;
        std::byte* place = to + (position * at.value_stride + d) * 2;
        if (IsWritten(p, piece, entry, position)) {
          Block::CopyAhead(place, rows + (position * from.v_dim + d) * 2);
        } else {  // meets weights of zero, and must be a number
          for (int n = 0; n < 8; ++n) reinterpret_cast<Half*>(place)[n] = 0;
        }
      }
    });
    to += at.values;
  }
  if (from.k_element == Element::kInt8) {
    CopyBytes(block, to, bytes + from.key_scales + head * kBlockPositions * 4, kBlockPositions * 4);
    to += kBlockPositions * 4;
  }
  if (from.v_element == Element::kInt8) {
    CopyBytes(block, to, bytes + from.value_scales + head * kBlockPositions * 4,
              kBlockPositions * 4);
  }
}

// Codes become halves: those of keys as they are, those of values times their scale.
template <class Block>
KVANT_GPU void Convert(Block& block, const AttentionParams& p, const SharedLayout& at,
                       const Piece& piece, const Entry& entry, const std::byte* stage,
                       std::byte* converted) {
  const LayerBlocks& from = p.blocks;
  const bool k_codes = from.k_element == Element::kInt8;
  const bool v_codes = from.v_element == Element::kInt8;
  Half* keys = reinterpret_cast<Half*>(converted);
  Half* values = reinterpret_cast<Half*>(converted + (k_codes ? at.keys : 0));
  const std::byte* raw_values = stage + (k_codes ? at.raw_keys : at.keys);
  const float* value_scales = reinterpret_cast<const float*>(
      stage + at.stage - kBlockPositions * static_cast<int>(sizeof(float)));
  block.Each([&](int t) {
    if (k_codes) {
      const int tile_words = from.k_dim / 4 * kKeyTilePositions;
      for (int i = t; i < 2 * tile_words; i += kThreads) {
        const int position = i / tile_words * kKeyTilePositions + i % kKeyTilePositions;
        const int d = i % tile_words / kKeyTilePositions * 4;
        for (int n = 0; n < 4; ++n) {
          const int code = static_cast<int>(stage[4 * i + n]) - 128;
          keys[(d + n) * kKeyStride + position] = ToHalf(static_cast<float>(code));
        }
      }
      for (int i = from.k_dim * kKeyStride + t; i < at.k_padded * kKeyStride; i += kThreads) {
        keys[i] = 0;
      }
    }
    if (v_codes) {
      for (int i = t; i < kBlockPositions / kValueTilePositions * from.v_dim; i += kThreads) {
        const int position = i / from.v_dim * kValueTilePositions;
        const int d = i % from.v_dim;
        for (int n = 0; n < kValueTilePositions; ++n) {
          const int code = static_cast<signed char>(raw_values[4 * i + n]);
          const float value = IsWritten(p, piece, entry, position + n)
                                  ? static_cast<float>(code) * value_scales[position + n]
                                  : 0.0f;
          values[(position + n) * at.value_stride + d] = ToFiniteHalf(value);
        }
      }
    }
  });
}

}  // namespace kvant::cuda
