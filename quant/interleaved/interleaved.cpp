// Where a format's codes change places, a struct of quant/interleaved/interleaved_blocks.h or
// quant/interleaved/interleaved_codebooks.h reads them; where whole bytes do, a function of this
// file moves them.
#include "quant/interleaved/interleaved.h"

#include <cstring>

#include "quant/format_list.h"
#include "quant/interleaved/interleaved_blocks.h"
#include "quant/interleaved/interleaved_codebooks.h"

namespace kvant::quant {
namespace {

using namespace interleaved;

// ---- Drivers -----------------------------------------------------------------------------------

template <class T>
T LoadAt(const std::byte* from) {
  static_assert(alignof(T) == 1);
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <class T>
void StoreAt(std::byte* to, const T& value) {
  std::memcpy(to, &value, sizeof(value));
}

// Heads of the rows, where there are some, then the blocks of all of them.
template <class Source>
void UnpackRows(const std::byte* from, int64_t cols, std::byte* to) {
  using Format = typename Source::Format;
  using Block = typename Format::Block;
  static_assert(sizeof(Source) == Source::kRows * sizeof(Block));
  const int64_t blocks = cols / Format::kBlockValues;
  int64_t head_bytes = 0;
  if constexpr (requires { typename Format::Head; }) head_bytes = sizeof(typename Format::Head);
  const int64_t row_bytes = head_bytes + blocks * static_cast<int64_t>(sizeof(Block));
  for (int k = 0; k < Source::kRows; ++k) {
    std::memcpy(to + k * row_bytes, from + k * head_bytes, static_cast<size_t>(head_bytes));
  }
  from += Source::kRows * head_bytes;
  for (int64_t b = 0; b < blocks; ++b, from += sizeof(Source)) {
    const Source source = LoadAt<Source>(from);
    for (int k = 0; k < Source::kRows; ++k) {
      Block block{};
      Format::Pack(Source::Read(source, k), block);
      StoreAt(to + k * row_bytes + head_bytes + b * static_cast<int64_t>(sizeof(Block)), block);
    }
  }
}

// Rows of 32 values with a scale for the row, which each block of IQ1_S gets.
void UnpackIq1S(const std::byte* from, int64_t cols, std::byte* to) {
  struct Source {
    uint8_t points[16];
    PackedU16 high[4];
  };
  constexpr int kRows = 4;
  const std::byte* blocks = from + kRows * sizeof(PackedHalf);
  for (int k = 0; k < kRows; ++k) {
    for (int64_t b = 0; b < cols / 256; ++b) {
      GridFit fit{};
      fit.d = LoadAt<PackedHalf>(from + k * static_cast<int64_t>(sizeof(PackedHalf)));
      for (int g = 0; g < 8; ++g) {
        const auto source =
            LoadAt<Source>(blocks + (8 * b + g) * static_cast<int64_t>(sizeof(Source)));
        const uint32_t high = source.high[k].value();
        fit.scales[g] = static_cast<uint8_t>(high >> 12 & 7);
        for (int v = 0; v < 4; ++v) {
          fit.points[4 * g + v] =
              static_cast<uint16_t>(source.points[4 * v + k] | (high >> (3 * v) & 7) << 8);
          fit.minus[4 * g + v] = high >> 15 != 0;
        }
      }
      IQ1_S::Block block{};
      IQ1_S::Pack(fit, block);
      StoreAt(to, block);
      to += sizeof(block);
    }
  }
}

// Codes with a scale for 256 of them become blocks of Q8_0 with that scale. kBias: added to codes.
template <int kRows, int kBias>
void UnpackQ8K(const std::byte* from, int64_t cols, std::byte* to) {
  constexpr int64_t kSource = kRows * (2 + 256);
  for (int k = 0; k < kRows; ++k) {
    for (int64_t b = 0; b < cols / 32; ++b) {
      const std::byte* source = from + b / 8 * kSource;
      Q8_0::Block block{};
      block.d = LoadAt<PackedHalf>(source + 2 * k);
      const std::byte* codes = source + 2 * kRows;
      for (int64_t i = 0; i < 32; ++i) {
        const int64_t at = b % 8 * 32 + i;
        const int code = static_cast<int>(codes[at / 4 * 4 * kRows + 4 * k + at % 4]) - kBias;
        block.codes[i] = static_cast<int8_t>(code);
      }
      StoreAt(to, block);
      to += sizeof(block);
    }
  }
}

void UnpackQ8Kv(const std::byte* from, int64_t cols, std::byte* to) {
  constexpr int kRows = 8;
  const std::byte* codes = from + kRows * sizeof(FloatHead);
  for (int k = 0; k < kRows; ++k) {
    Q8_KV::Head head{LoadAt<FloatHead>(from + k * static_cast<int64_t>(sizeof(FloatHead))), {}};
    int64_t sum = 0;
    for (int64_t i = 0; i < cols; ++i) {
      const auto code = static_cast<int8_t>(codes[i / 4 * 4 * kRows + 4 * k + i % 4]);
      to[static_cast<int64_t>(sizeof(head)) + i] = static_cast<std::byte>(code);
      sum += code;
    }
    head.sum.Set(static_cast<uint32_t>(sum));
    StoreAt(to, head);
    to += static_cast<int64_t>(sizeof(head)) + cols;
  }
}

void UnpackBf16(const std::byte* from, int64_t cols, std::byte* to) {
  constexpr int kRows = 16;
  for (int k = 0; k < kRows; ++k) {
    for (int64_t i = 0; i < cols; i += 2, to += 4) {
      std::memcpy(to, from + 2 * (i * kRows + 2 * k), 4);
    }
  }
}

void UnpackIq2Bn(const std::byte* from, int64_t cols, std::byte* to) {
  constexpr int kRows = 4;
  const std::byte* bytes = from + kRows * sizeof(FloatHead);
  for (int k = 0; k < kRows; ++k) {
    StoreAt(to, LoadAt<FloatHead>(from + k * static_cast<int64_t>(sizeof(FloatHead))));
    to += sizeof(FloatHead);
    for (int64_t b = 0; b < cols / 64; ++b) {
      uint8_t codes[64];
      for (int i = 0; i < 64; ++i) {
        const auto byte = static_cast<int>(bytes[64 * b + i / 16 * 16 + 4 * k + i % 4]);
        codes[i] = static_cast<uint8_t>(byte >> (i % 16 / 4 * 2) & 3);
      }
      IQ2_BN::Block block{};
      IQ2_BN::Pack(codes, block);
      StoreAt(to, block);
      to += sizeof(block);
    }
  }
}

template <class Source>
constexpr InterleavedType TypeOf(uint32_t id, const char* name) {
  using Format = typename Source::Format;
  int head_bytes = 0;
  if constexpr (requires { typename Format::Head; }) head_bytes = sizeof(typename Format::Head);
  return {id,
          name,
          Format::kName,
          Source::kRows,
          head_bytes,
          Format::kBlockValues,
          sizeof(typename Format::Block),
          UnpackRows<Source>};
}

constexpr InterleavedType kTypes[] = {
    TypeOf<Q4_0_R8>(202, "Q4_0_R8"),
    TypeOf<Q5_0_R4>(206, "Q5_0_R4"),
    TypeOf<Q8_0_R8>(208, "Q8_0_R8"),
    TypeOf<Q2_K_R4>(210, "Q2_K_R4"),
    TypeOf<Q3_K_R4>(211, "Q3_K_R4"),
    TypeOf<Q4_K_R4>(212, "Q4_K_R4"),
    TypeOf<Q5_K_R4>(213, "Q5_K_R4"),
    TypeOf<Q6_K_R4>(214, "Q6_K_R4"),
    TypeOf<IQ2_XXS_R4>(216, "IQ2_XXS_R4"),
    TypeOf<IQ2_XS_R4>(217, "IQ2_XS_R4"),
    TypeOf<IQ3_XXS_R4>(218, "IQ3_XXS_R4"),
    {219, "IQ1_S_R4", IQ1_S::kName, 4, 2, 32, 6, UnpackIq1S},
    TypeOf<IQ4_NL_R4>(220, "IQ4_NL_R4"),
    TypeOf<IQ3_S_R4>(221, "IQ3_S_R4"),
    TypeOf<IQ2_S_R4>(222, "IQ2_S_R4"),
    TypeOf<IQ4_XS_R8>(223, "IQ4_XS_R8"),
    {230, "BF16_R16", Bf16::kName, 16, 0, 2, 4, UnpackBf16},
    TypeOf<Q6_0_R4>(233, "Q6_0_R4"),
    {335, "IQ2_BN_R4", IQ2_BN::kName, 4, 4, 64, 16, UnpackIq2Bn},
    TypeOf<IQ2_K_R4>(337, "IQ2_K_R4"),
    TypeOf<IQ3_K_R4>(338, "IQ3_K_R4"),
    TypeOf<IQ4_K_R4>(339, "IQ4_K_R4"),
    TypeOf<IQ5_K_R4>(340, "IQ5_K_R4"),
    TypeOf<IQ4_KS_R4>(344, "IQ4_KS_R4"),
    TypeOf<IQ5_KS_R4>(352, "IQ5_KS_R4"),
    TypeOf<MXFP4_R8>(353, "MXFP4_R8"),
    {397, "Q8_K_R16", Q8_0::kName, 16, 0, 256, 258, UnpackQ8K<16, 128>},
    {398, "Q8_KV_R8", Q8_KV::kName, 8, 4, 32, 32, UnpackQ8Kv},
    {399, "Q8_K_R8", Q8_0::kName, 8, 0, 256, 258, UnpackQ8K<8, 0>},
};

}  // namespace

const InterleavedType* FindInterleavedType(uint32_t id) {
  for (const InterleavedType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

}  // namespace kvant::quant
