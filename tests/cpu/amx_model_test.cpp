// The kernels of AMX over a model of the tile instructions in plain loops, so that layout and
// arithmetic are tested on processors without tiles: run by all tests of instruction sets as
// "amx_model". The model aborts where hardware would fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "cpu/avx512vnni/isa.h"
#include "cpu/avx512vnni/peaks.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"
#include "tests/cpu/isa_test.h"

#if defined(__x86_64__)

namespace kvant::cpu::amx_model {
namespace {

struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The state that LDTILECFG sets up, and eight tiles of 16 rows of 64 bytes (Intel's Software
// Developer's Manual, volume 2, "TDPBSSD/TDPBSUD/TDPBUSD/TDPBUUD" and its neighbours).
struct Tiles {
  static inline thread_local bool configured = false;
  static inline thread_local TileConfig shape;
  static inline thread_local std::byte data[8][16][64];

  static void Configure(const TileConfig& config) {
    KVANT_CHECK(config.palette == 1 && config.start_row == 0);
    for (int tile = 0; tile < 16; ++tile) {
      KVANT_CHECK(config.rows[tile] <= (tile < 8 ? 16 : 0));
      KVANT_CHECK(config.row_bytes[tile] <= (tile < 8 ? 64 : 0));
    }
    shape = config;
    configured = true;
    std::memset(data, 0, sizeof(data));
  }
  static void Release() { configured = false; }

  static void CheckUse(int tile) {
    KVANT_CHECK(configured && shape.rows[tile] > 0 && shape.row_bytes[tile] > 0);
  }

  template <int kTile>
  static void Zero() {
    CheckUse(kTile);
    std::memset(data[kTile], 0, sizeof(data[kTile]));
  }

  template <int kTile>
  static void Load(const void* source, int64_t stride) {
    Zero<kTile>();
    for (int64_t row = 0; row < shape.rows[kTile]; ++row) {
      std::memcpy(data[kTile][row], static_cast<const std::byte*>(source) + row * stride,
                  shape.row_bytes[kTile]);
    }
  }

  template <int kTile>
  static void Store(void* target, int64_t stride) {
    CheckUse(kTile);
    for (int64_t row = 0; row < shape.rows[kTile]; ++row) {
      std::memcpy(static_cast<std::byte*>(target) + row * stride, data[kTile][row],
                  shape.row_bytes[kTile]);
    }
  }

  template <int kSums, int kSigned, int kUnsigned>
  static void MultiplyAdd() {
    for (const int tile : {kSums, kSigned, kUnsigned}) CheckUse(tile);
    KVANT_CHECK(shape.row_bytes[kSigned] == 4 * shape.rows[kUnsigned]);
    KVANT_CHECK(shape.rows[kSums] == shape.rows[kSigned]);
    KVANT_CHECK(shape.row_bytes[kSums] == shape.row_bytes[kUnsigned]);
    for (int m = 0; m < shape.rows[kSums]; ++m) {
      for (int n = 0; n < shape.row_bytes[kSums] / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, data[kSums][m] + 4 * n, sizeof(sum));
        for (int k = 0; k < shape.rows[kUnsigned]; ++k) {
          for (int i = 0; i < 4; ++i) {
            sum += static_cast<int8_t>(data[kSigned][m][4 * k + i]) *
                   static_cast<uint8_t>(data[kUnsigned][k][4 * n + i]);
          }
        }
        std::memcpy(data[kSums][m] + 4 * n, &sum, sizeof(sum));
      }
    }
  }
};

}  // namespace
}  // namespace kvant::cpu::amx_model

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::amx_model {
namespace {

constexpr const char* kIsaName = "amx_model";

#include "cpu/amx/matmul.inl"
#include "cpu/amx/peaks.inl"

}  // namespace
}  // namespace kvant::cpu::amx_model

#include "cpu/avx512vnni/end.inl"

namespace kvant::cpu::test {
namespace {

KernelTable BuildTable() {
  static const PeakLoops peaks = amx_model::BuildPeaks();
  KernelTable table = *avx512vnni::Kernels();
  table.isa = amx_model::kIsaName;
  table.matmul = amx_model::BuildKernels();
  table.peaks = &peaks;
  return table;
}

}  // namespace

const KernelTable* AmxModelKernels() {
  if (!WhyRefused(DetectCpuFeatures(), avx512vnni::kRequired).empty()) return nullptr;
  static const KernelTable table = BuildTable();
  return &table;
}

}  // namespace kvant::cpu::test

#else

namespace kvant::cpu::test {
const KernelTable* AmxModelKernels() { return nullptr; }
}  // namespace kvant::cpu::test

#endif
