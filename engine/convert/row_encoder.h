// Makes the rows of one tensor of a GGUF file from rows of the folder's tensor: finds each in the
// order of its RowOrder, in the part of the source that the tensor is made of, and encodes its
// values.
//
// Rows are those of a matrix. A vector is one row, or a column with a row for each value where its
// values change places.
//
// Thread-safety: an encoder belongs to one thread; several may encode different rows of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/kernels/blocks.h"
#include "engine/convert/weights.h"
#include "quant/format.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::convert {

class RowEncoder {
 public:
  // Both must outlive it. The tensor is not a computed one.
  RowEncoder(const OutputTensor& tensor, const cpu::KernelTable& kernels);

  int64_t rows() const { return rows_; }

  // Writes row `row` to its place in the bytes of the tensor.
  void Encode(int64_t row, std::byte* out);

 private:
  struct Source {
    const formats::SafetensorsTensor* tensor;
    int64_t row;  // of all in the tensor, or its column where rows are columns
  };
  Source SourceOf(int64_t row) const;
  void CopySource(int64_t row);
  void CopyColumns(const std::byte* row);
  void CopyColumnOfHead(int64_t row);
  void DivideByLength();
  void MultiplyByFactors(int64_t row);
  void RepackMxfp4(int64_t row, std::byte* out) const;

  const OutputTensor& tensor_;
  cpu::EncodeFunction encode_;
  int64_t rows_;
  int64_t columns_;
  int64_t element_bytes_;
  const quant::FormatTraits* source_format_;  // null for F64, which is no block format
  std::vector<float> values_;
  std::vector<std::byte> source_row_;
};

}  // namespace kvant::convert
