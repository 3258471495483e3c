// The least that a pass asks of the machine: bytes that must be read, and multiplications, counted
// by the arithmetic that they are done in.
//
// Each weight that a pass uses counts once, and so does each cached position that some row sees.
// Norms, activations, embeddings and writes of the cache are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cpu/kv_format_list.h"
#include "engine/graph/rows.h"

namespace kvant::formats {
struct GgufTensor;
}

namespace kvant::graph {

struct Work {
  double weight_bytes = 0;
  double cache_bytes = 0;
  // Multiply-accumulates:
  double int8_macs = 0;   // with quantized weights, or q8 keys and values
  double int16_macs = 0;  // with weights of 16 bits
  double float_macs = 0;

  // A matrix of which `read`, 0 to 1, is read, and each of whose values is multiplied `tokens`
  // times.
  void AddProducts(const formats::GgufTensor& matrix, double read, double tokens);

  Work& operator+=(const Work& other) {
    weight_bytes += other.weight_bytes;
    cache_bytes += other.cache_bytes;
    int8_macs += other.int8_macs;
    int16_macs += other.int16_macs;
    float_macs += other.float_macs;
    return *this;
  }
  Work operator*(double part) const {
    return {weight_bytes * part, cache_bytes * part, int8_macs * part, int16_macs * part,
            float_macs * part};
  }
  double bytes() const { return weight_bytes + cache_bytes; }
  double macs() const { return int8_macs + int16_macs + float_macs; }
};

// A share's part of a node's work. Units are the node's own: rows of weights, pieces of rows.
struct ShareWork {
  double units = 0;
  Work work;
};

// One pass, for nodes that tell their work.
struct PassShape {
  // Rows of one sequence: the tokens at its positions [end - rows, end).
  struct Part {
    int64_t rows = 0;
    int64_t end = 0;
    bool shares_cache = false;  // an earlier part counts the positions that both see, as with beams
    int64_t source = 0;         // positions of its source
  };
  struct CacheTypes {
    KvType k_type;
    KvType v_type;
    KvType state_type = KvType::kF32;  // what scans keep
  };

  RowCounts rows;
  std::span<const Part> parts = {};
  std::optional<CacheTypes> cache =
      {};  // none: the pass holds all of each sequence, and stores nothing

  // The bytes of all parts' states, with `numbers` values of scans in each.
  double ScanBytes(int64_t numbers) const {
    const bool halves = cache.has_value() && cache->state_type == KvType::kF16;
    return static_cast<double>(parts.size()) * static_cast<double>(numbers) * (halves ? 2 : 4);
  }
};

}  // namespace kvant::graph
