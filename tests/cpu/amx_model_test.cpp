// The kernels of AMX over a model of the tile instructions in plain loops, so that layout and
// arithmetic are tested on processors without tiles: run by all tests of instruction sets as
// "amx_model". The model aborts where hardware would fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "cpu/avx512vbmi/isa.h"
#include "cpu/avx512vnni/peaks.h"
#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
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
// Developer's Manual, volume 2, "TDPBF16PS" and its neighbours).
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
  static void LoadPastCache(const void* source, int64_t stride) {
    Load<kTile>(source, stride);
  }

  template <int kTile>
  static void Store(void* target, int64_t stride) {
    CheckUse(kTile);
    for (int64_t row = 0; row < shape.rows[kTile]; ++row) {
      std::memcpy(static_cast<std::byte*>(target) + row * stride, data[kTile][row],
                  shape.row_bytes[kTile]);
    }
  }

  // The even and the odd numbers of a row of a tile. Denormal numbers count as zeros, as in the
  // instruction. Vectors of the language, because loops would take minutes with sanitizers.
  using Floats [[gnu::vector_size(64)]] = float;
  struct Numbers {
    Floats even, odd;

    Numbers(int tile, int row) {
      using Words [[gnu::vector_size(64)]] = uint32_t;
      Words pairs;
      std::memcpy(&pairs, data[tile][row], sizeof(pairs));
      const Words low = pairs << 16;
      const Words high = pairs & 0xffff0000;
      even = reinterpret_cast<Floats>((low & 0x7f800000) == 0 ? Words{} : low);
      odd = reinterpret_cast<Floats>((high & 0x7f800000) == 0 ? Words{} : high);
    }
    Numbers() = default;
  };

  // Products of even and of odd numbers have sums of their own, which the sum of a lane then takes.
  // A product of two numbers of 8 bits is exact, so that a sum rounds once.
  template <int kSums, int kLeft, int kRight>
  static void MultiplyBf16() {
    for (const int tile : {kSums, kLeft, kRight}) CheckUse(tile);
    KVANT_CHECK(shape.row_bytes[kLeft] == 4 * shape.rows[kRight]);
    KVANT_CHECK(shape.rows[kSums] == shape.rows[kLeft]);
    KVANT_CHECK(shape.row_bytes[kSums] == shape.row_bytes[kRight]);
    Numbers right[16];
    for (int k = 0; k < shape.rows[kRight]; ++k) right[k] = Numbers(kRight, k);
    for (int m = 0; m < shape.rows[kSums]; ++m) {
      const Numbers left(kLeft, m);
      Floats even = {};
      Floats odd = {};
      for (int k = 0; k < shape.rows[kRight]; ++k) {
        even += left.even[k] * right[k].even;
        odd += left.odd[k] * right[k].odd;
      }
      Floats sums;
      std::memcpy(&sums, data[kSums][m], sizeof(sums));
      sums += even + odd;
      std::memcpy(data[kSums][m], &sums, sizeof(sums));
    }
  }

  // Multiplies bytes, four to a lane, by vectors of the language as well.
  template <int kSums, int kLeft, int kRight, class LeftByte>
  static void MultiplyBytes() {
    for (const int tile : {kSums, kLeft, kRight}) CheckUse(tile);
    KVANT_CHECK(shape.row_bytes[kLeft] == 4 * shape.rows[kRight]);
    KVANT_CHECK(shape.rows[kSums] == shape.rows[kLeft]);
    KVANT_CHECK(shape.row_bytes[kSums] == shape.row_bytes[kRight]);
    using Ints [[gnu::vector_size(64)]] = int32_t;
    Ints right[64];  // number k of each lane
    for (int k = 0; k < shape.row_bytes[kLeft]; ++k) {
      Ints four;
      std::memcpy(&four, data[kRight][k / 4], sizeof(four));
      right[k] = four << (24 - 8 * (k % 4)) >> 24;
    }
    for (int m = 0; m < shape.rows[kSums]; ++m) {
      Ints sums;
      std::memcpy(&sums, data[kSums][m], sizeof(sums));
      for (int k = 0; k < shape.row_bytes[kLeft]; ++k) {
        sums += static_cast<int32_t>(static_cast<LeftByte>(data[kLeft][m][k])) * right[k];
      }
      std::memcpy(data[kSums][m], &sums, sizeof(sums));
    }
  }
  template <int kSums, int kLeft, int kRight>
  static void MultiplySigned() {
    MultiplyBytes<kSums, kLeft, kRight, int8_t>();
  }
  template <int kSums, int kLeft, int kRight>
  static void MultiplyUnsigned() {
    MultiplyBytes<kSums, kLeft, kRight, uint8_t>();
  }
};

}  // namespace
}  // namespace kvant::cpu::amx_model

#include "cpu/amx/begin.inl"

namespace kvant::cpu::amx_model {
namespace {

constexpr const char* kIsaName = "amx_model";

// The features that begin.inl compiles for beside those of cpu/avx512vbmi.
constexpr CpuFeature kBf16[] = {CpuFeature::kAvx512bf16};

#include "cpu/amx/matmul.inl"
#include "cpu/amx/peaks.inl"
#include "cpu/amx/round_activations.inl"

namespace attention {
#include "cpu/amx/attention.inl"
}  // namespace attention

}  // namespace
}  // namespace kvant::cpu::amx_model

#include "cpu/avx512vnni/end.inl"

namespace kvant::cpu::test {
namespace {

KernelTable BuildTable() {
  static const PeakLoops peaks = amx_model::BuildPeaks();
  KernelTable table = *avx512vbmi::Kernels();
  table.isa = amx_model::kIsaName;
  table.matmul = amx_model::BuildKernels();
  table.attention_scratch_bytes = amx_model::attention::ScratchBytes;
  table.attention = amx_model::attention::Attend;
  table.many_form = ActivationForm::kBf16;
  table.quantize_many = amx_model::RoundActivations;
  table.peaks = &peaks;
  return table;
}

}  // namespace

const KernelTable* AmxModelKernels() {
  const CpuFeatures features = DetectCpuFeatures();
  if (!WhyRefused(features, avx512vbmi::kRequired).empty()) return nullptr;
  if (!WhyRefused(features, amx_model::kBf16).empty()) return nullptr;
  static const KernelTable table = BuildTable();
  return &table;
}

}  // namespace kvant::cpu::test

#else

namespace kvant::cpu::test {
const KernelTable* AmxModelKernels() { return nullptr; }
}  // namespace kvant::cpu::test

#endif
