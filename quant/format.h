// The properties of a tensor's element format: the interface that every header of this folder fills
// in.
//
// A format is one header (bit diagram, struct, size assert, scalar encode and decode) and one line
// in quant/format_list.h; nothing else names it. Formats store rows as consecutive blocks of a
// fixed number of values, some after a head of a few bytes. The scalar code here is the reference:
// it is never optimised, and every fast kernel is tested against it.
//
// Thread-safety: everything is constant or pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvant::quant {

// The type id that a GGUF file stores for a tensor. Each format's header defines its own constant.
enum class TensorType : uint32_t {};

// The most values that one block of any format holds.
inline constexpr int kBlockValuesMax = 256;

// Values that share one scale in the integer form below. Every quantized format's sub-blocks are a
// multiple of it.
inline constexpr int kGroupValues = 16;

// One block as signed integers with a scale and an offset per group of 16 values, the form the
// generic kernels work on: value[i] = scale[i / 16] * code[i] - offset[i / 16].
struct IntegerBlock {
  int8_t codes[kBlockValuesMax];
  float scales[kBlockValuesMax / kGroupValues];
  float offsets[kBlockValuesMax / kGroupValues];  // zero where !FormatTraits::has_offsets
};

struct FormatTraits {
  TensorType type{};
  const char* name = nullptr;  // as written in GGUF tools: "Q4_K"
  int block_values = 0;        // values per block: 1 for float formats, else 32, 64 or 256
  int block_bytes = 0;
  // Bytes before a row's blocks, which hold a factor of all its scales. 0 for most formats.
  int head_bytes = 0;
  bool has_offsets = false;
  // Without importances the format's few bits do so much harm that tools refuse; `encode` itself
  // works with equal weights.
  bool needs_importance = false;

  // Decodes whole blocks, n_values % block_values == 0, of one row where rows have a head, else of
  // any. Total: any bit pattern gives numbers (possibly NaN or infinity where a scale is).
  void (*decode)(const std::byte* blocks, float* values, int64_t n_values) = nullptr;

  // Encodes whole blocks, deterministic, round to nearest. `importance` is null, or one
  // non-negative weight per value of the row. Blocks of one row where rows have a head.
  void (*encode)(const float* values, const float* importance, std::byte* blocks,
                 int64_t n_values) = nullptr;

  // One block in integer form, without the row's factor; null for float formats.
  void (*to_integers)(const std::byte* block, IntegerBlock& out) = nullptr;

  // The factor that a row's head holds; null where rows have none.
  float (*row_factor)(const std::byte* row) = nullptr;

  bool quantized() const { return to_integers != nullptr; }
  double bits_per_value() const { return 8.0 * block_bytes / block_values; }
  // Bytes of a row; cols must be a multiple of block_values.
  int64_t row_bytes(int64_t cols) const { return head_bytes + cols / block_values * block_bytes; }
};

// Decodes `rows` rows that follow each other.
void DecodeRows(const FormatTraits& format, const std::byte* bytes, int64_t rows, int64_t cols,
                float* values);

// All formats in the order of quant/format_list.h.
std::span<const FormatTraits> AllFormats();

// The format with this id or (case-insensitive) name, or null.
const FormatTraits* FindFormat(TensorType type);
const FormatTraits* FindFormat(std::string_view name);

// The position of a known format in AllFormats(): the index of per-format kernel tables.
int FormatIndex(const FormatTraits& format);

// The name of a type id that is known to exist but that this build cannot read ("IQ2_XS",
// "Q4_0_4_4 (removed from GGUF)"), or null for ids nobody has defined.
const char* UnsupportedTypeName(uint32_t type_id);

}  // namespace kvant::quant
