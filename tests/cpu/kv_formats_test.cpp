// The list of formats of keys and values: sizes, places of numbers, and who computes with a format.
#include <random>
#include <vector>

#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "cpu/kv_kernels.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

TEST(KvFormats, SizesOfPlainRowsAndScales) {
  for (const int64_t dim : {1, 6, 75, 128, 1024}) {
    const auto count = static_cast<size_t>(dim);
    EXPECT_EQ(KvRowBytes(KvType::kF32, dim), 4 * count);
    EXPECT_EQ(KvRowBytes(KvType::kF16, dim), 2 * count);
    EXPECT_EQ(KvRowBytes(KvType::kQ8, dim), count);
    EXPECT_EQ(KvScaleBytes(KvType::kF32, dim), 0u);
    EXPECT_EQ(KvScaleBytes(KvType::kF16, dim), 0u);
    EXPECT_EQ(KvScaleBytes(KvType::kQ8, dim), 4u);
  }
}

// Three bits a number, and a scale of two bytes for 32 numbers.
TEST(KvFormats, SizesOfPackedNumbersWithSeveralScales) {
  KvTraits traits = KvTraitsOf(KvType::kQ8);
  traits.bits = 3;
  traits.numbers_per_scale = 32;
  traits.scale_bytes = 2;
  struct Size {
    size_t count, row, scales;
  };
  for (const Size& size : {Size{1, 1, 2}, Size{2, 1, 2}, Size{3, 2, 2}, Size{8, 3, 2},
                           Size{32, 12, 2}, Size{33, 13, 4}, Size{128, 48, 8}}) {
    EXPECT_EQ(traits.RowBytes(size.count), size.row) << size.count;
    EXPECT_EQ(traits.ScaleBytes(size.count), size.scales) << size.count;
  }
}

// visit(Format()) for all formats.
template <class Visit, class... Formats>
void ForEachFormatOf(KvFormatTypes<Formats...> /*list*/, const Visit& visit) {
  (visit(Formats()), ...);
}
template <class Visit>
void ForEachFormat(const Visit& visit) {
  ForEachFormatOf(KvFormatList(), visit);
}

// Random plain rows, one for each of `tokens`, whose numbers any value of the format can be.
std::vector<std::vector<std::byte>> RandomRows(KvType type, int dim, int tokens) {
  std::mt19937 random(static_cast<uint32_t>(dim));
  std::vector<std::vector<std::byte>> rows(static_cast<size_t>(tokens));
  for (std::vector<std::byte>& row : rows) {
    row.resize(KvRowBytes(type, dim));
    for (std::byte& byte : row) byte = static_cast<std::byte>(random());
  }
  return rows;
}

// Writes all tokens of a tile and reads them again: what one token has is no other token's.
template <class Format, class Put, class Get>
void ExpectRowsInTile(int dim, int tokens, const Put& put, const Get& get) {
  const auto rows = RandomRows(Format::kType, dim, tokens);
  const auto dims = static_cast<size_t>(dim);
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    for (size_t d = 0; d < dims; ++d) put(slot, d, Format::InRow(rows[slot].data(), d));
  }
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    std::vector<std::byte> found(KvRowBytes(Format::kType, dim));
    std::vector<std::byte> expected = found;
    for (size_t d = 0; d < dims; ++d) {
      Format::PutInRow(found.data(), d, get(slot, d));
      Format::PutInRow(expected.data(), d, Format::InRow(rows[slot].data(), d));
    }
    ASSERT_EQ(found, expected) << Format::kName << ", " << dim << " dimensions, slot " << slot;
  }
}

TEST(KvFormats, ATileHasRoomForTheNumbersOfItsTokens) {
  for (const int dim : {1, 6, 75, 128}) {
    const auto dims = static_cast<size_t>(dim);
    ForEachFormat([&]<class Format>(Format) {
      const GuardedArray<std::byte> keys(Format::KeyTileBytes(dims));
      ExpectRowsInTile<Format>(
          dim, kKeyTileTokens,
          [&](size_t slot, size_t d, auto n) { Format::PutKey(keys.data(), slot, d, n); },
          [&](size_t slot, size_t d) { return Format::Key(keys.data(), slot, d); });
      const GuardedArray<std::byte> values(Format::ValueTileBytes(dims));
      ExpectRowsInTile<Format>(
          dim, kValueTileTokens,
          [&](size_t slot, size_t d, auto n) { Format::PutValue(values.data(), slot, d, dims, n); },
          [&](size_t slot, size_t d) { return Format::Value(values.data(), slot, d, dims); });
    });
  }
}

class KvKernels : public IsaTest {};
KVANT_FOR_EACH_ISA(KvKernels);

TEST_P(KvKernels, PlainCodeComputesWhereAnInstructionSetHasNoKernels) {
  ForEachFormat([&]<class Format>(Format) {
    const KernelTable* expected = Format::kHasVectorKernels ? &kernels() : &reference();
    EXPECT_EQ(&KernelsFor(kernels(), Format::kType, Format::kType), expected);
    EXPECT_EQ(&KernelsFor(kernels(), KvType::kF16, Format::kType), expected);
    EXPECT_EQ(&KernelsFor(kernels(), Format::kType, KvType::kF16), expected);
  });
  EXPECT_GE(kernels().attention_scratch_bytes(1, 1, 1, 1, KeyForm::kStored),
            reference().attention_scratch_bytes(1, 1, 1, 1, KeyForm::kStored));
  EXPECT_GE(kernels().attention_scratch_bytes(7, 3, 64, 512, KeyForm::kValueFirst),
            reference().attention_scratch_bytes(7, 3, 64, 512, KeyForm::kValueFirst));
}

}  // namespace
}  // namespace kvant::cpu::test
