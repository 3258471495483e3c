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
  int64_t row_bytes() const { return tensor_.format->row_bytes(columns_); }

  // Writes the row_bytes() of row `row`.
  void Encode(int64_t row, std::byte* out);

 private:
  struct Source {
    size_t index;  // in the tensor's sources
    int64_t row;   // of all in the source, or its column where rows are columns
  };
  // Values of a source, counted over all of it.
  struct Stretch {
    int64_t first;
    int64_t count;
    int64_t step = 1;
  };
  Source SourceOf(int64_t row) const;
  void CopySource(int64_t row);
  void CopyTiledColumns(const Source& source);
  void CopyColumnOfHead(int64_t row);
  void CopyValues(size_t source, const Stretch& values, int64_t to_column);
  void DivideByLength();
  void MultiplyByFactors(int64_t row);
  void CopyCodes(int64_t row, std::byte* out) const;
  void ReadOtherValues(int64_t row);

  const OutputTensor& tensor_;
  cpu::EncodeFunction encode_;
  int64_t rows_;
  int64_t columns_;
  int64_t element_bytes_;
  // Null for F64 and integers, which are no block formats; F32 where sources have scales.
  const quant::FormatTraits* source_format_;
  std::vector<float> values_;
  std::vector<std::byte> source_row_;
};

}  // namespace kvant::convert
