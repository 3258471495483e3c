// Builds the table of formats from quant/format_list.h.
//
// A quantized format decodes through its integer form: value = scale * code - offset. For every
// format that is bit for bit what ggml computes, because a half-precision scale times a few-bit
// integer is exact in binary32, so neither the order of such products nor a fused multiply-add
// changes the result.
#include "quant/format.h"

#include <array>
#include <cstring>

#include "quant/format_list.h"
#include "quant/unsupported_types.h"

namespace kvant::quant {
namespace {

template <class Format>
concept Quantized = requires(const typename Format::Block& block, IntegerBlock& out) {
  Format::ToIntegers(block, out);
};

// Blocks are copied out of and into the file's bytes, whatever their alignment and true type.
template <class Format>
typename Format::Block LoadBlock(const std::byte* bytes) {
  typename Format::Block block;
  std::memcpy(&block, bytes, sizeof(block));
  return block;
}

template <class Format>
void BlockToIntegers(const std::byte* bytes, IntegerBlock& out) {
  Format::ToIntegers(LoadBlock<Format>(bytes), out);
}

template <class Format>
concept Headed = requires { typename Format::Head; };

template <class Format>
float RowFactor(const std::byte* row) {
  typename Format::Head head;
  std::memcpy(&head, row, sizeof(head));
  return Format::Factor(head);
}

// factor: of the row, 1 where it has none.
template <class Format>
void DecodeBlock(const std::byte* bytes, float factor, float* values) {
  if constexpr (Quantized<Format>) {
    IntegerBlock integers;
    BlockToIntegers<Format>(bytes, integers);
    if constexpr (Headed<Format>) {
      for (int g = 0; g < Format::kBlockValues / kGroupValues; ++g) integers.scales[g] *= factor;
    }
    for (int i = 0; i < Format::kBlockValues; ++i) {
      const int group = i / kGroupValues;
      values[i] =
          integers.scales[group] * static_cast<float>(integers.codes[i]) - integers.offsets[group];
    }
  } else {
    Format::Decode(LoadBlock<Format>(bytes), values);
  }
}

template <class Format>
void DecodeBlocks(const std::byte* bytes, float* values, int64_t n_values) {
  float factor = 1;
  if constexpr (Headed<Format>) {
    factor = RowFactor<Format>(bytes);
    bytes += sizeof(typename Format::Head);
  }
  for (int64_t i = 0; i < n_values; i += Format::kBlockValues) {
    DecodeBlock<Format>(bytes, factor, values + i);
    bytes += sizeof(typename Format::Block);
  }
}

template <class Format>
void EncodeBlocks(const float* values, const float* importance, std::byte* bytes,
                  int64_t n_values) {
  for (int64_t i = 0; i < n_values; i += Format::kBlockValues) {
    typename Format::Block block{};
    Format::Encode(values + i, importance == nullptr ? nullptr : importance + i, block);
    std::memcpy(bytes, &block, sizeof(block));
    bytes += sizeof(block);
  }
}

template <class Format>
constexpr FormatTraits MakeTraits() {
  using Block = typename Format::Block;
  static_assert(Format::kBlockValues <= kBlockValuesMax);
  static_assert(alignof(Block) == 1, "blocks lie at any address");
  FormatTraits traits;
  traits.type = Format::kType;
  traits.name = Format::kName;
  traits.block_values = Format::kBlockValues;
  traits.block_bytes = sizeof(Block);
  traits.decode = DecodeBlocks<Format>;
  if constexpr (Headed<Format>) {
    static_assert(alignof(typename Format::Head) == 1);
    traits.head_bytes = sizeof(typename Format::Head);
    traits.row_factor = RowFactor<Format>;
    traits.encode = Format::EncodeRow;
  } else {
    traits.encode = EncodeBlocks<Format>;
  }
  if constexpr (Quantized<Format>) {
    static_assert(Format::kBlockValues % kGroupValues == 0);
    traits.has_offsets = Format::kHasOffsets;
    if constexpr (requires { Format::kNeedsImportance; }) {
      traits.needs_importance = Format::kNeedsImportance;
    }
    traits.to_integers = BlockToIntegers<Format>;
  }
  return traits;
}

template <class... Formats>
constexpr std::array<FormatTraits, sizeof...(Formats)> MakeTable(TypeList<Formats...>) {
  return {MakeTraits<Formats>()...};
}

constexpr auto kFormats = MakeTable(FormatList{});

constexpr char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (Upper(a[i]) != Upper(b[i])) return false;
  }
  return true;
}

}  // namespace

void DecodeRows(const FormatTraits& format, const std::byte* bytes, int64_t rows, int64_t cols,
                float* values) {
  for (int64_t row = 0; row < rows; ++row) {
    format.decode(bytes + row * format.row_bytes(cols), values + row * cols, cols);
  }
}

std::span<const FormatTraits> AllFormats() { return kFormats; }

const FormatTraits* FindFormat(TensorType type) {
  for (const FormatTraits& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

const FormatTraits* FindFormat(std::string_view name) {
  for (const FormatTraits& format : kFormats) {
    if (EqualIgnoringCase(format.name, name)) return &format;
  }
  return nullptr;
}

int FormatIndex(const FormatTraits& format) { return static_cast<int>(&format - kFormats.data()); }

const char* UnsupportedTypeName(uint32_t type_id) {
  if (FindFormat(TensorType{type_id}) != nullptr) return nullptr;
  const UnsupportedType* type = FindUnsupportedType(type_id);
  return type == nullptr ? nullptr : type->name;
}

}  // namespace kvant::quant
