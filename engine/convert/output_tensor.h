// A tensor of the file to be written: its name, format and shape, and the folder's tensors that it
// is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/arch/hf/hf_family.h"
#include "engine/convert/scaled_source.h"
#include "formats/safetensors.h"
#include "quant/format.h"

namespace kvant::convert {

using arch::HfShape;
using arch::Values;

struct OutputTensor {
  std::string name;
  const quant::FormatTraits* format = nullptr;
  std::vector<int64_t> dims;  // dims[0] is the contiguous one
  // The folder's tensor, or one for each expert or row; none for computed tensors.
  std::vector<const formats::SafetensorsTensor*> sources = {};
  // The sources again, with their scales, where they hold small floats.
  std::vector<ScaledSource> scaled = {};
  // Whether the codes and scales of the sources are those of the format.
  bool keeps_codes = false;
  bool split_values = false;  // each value of a vector is a row of its own below
  int64_t expert_rows = 1;    // of each expert or head; of all, where there is one matrix
  // The rows of each expert or head in the source, the first row that is taken, and the distance
  // from one taken row to the next.
  int64_t source_rows = 1;
  int64_t first_row = 0;
  int64_t row_step = 1;
  // The number of the first row of each source, where they are shards of one matrix; empty: they
  // are not.
  std::vector<int64_t> shard_rows = {};
  Values change = Values::kSame;              // of the sources' values
  float factor = 1;                           // of Values::kRescaled
  std::vector<arch::RowFactor> factors = {};  // of all rows, or of a vector's values; empty: none
  bool of_convolution = false;                // its rows are a few values, and never quantized
  arch::RowOrder order = arch::RowOrder::kSame;
  HfShape shape = {};         // what the order depends on
  std::vector<float> values;  // of computed tensors

  int64_t columns() const { return dims[0]; }
  int64_t rows() const {
    int64_t rows = 1;
    for (size_t i = 1; i < dims.size(); ++i) rows *= dims[i];
    return rows;
  }
  int64_t size_bytes() const { return rows() * format->row_bytes(columns()); }
};

}  // namespace kvant::convert
