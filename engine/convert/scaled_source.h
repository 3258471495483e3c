// A tensor of a folder whose values are small floats with scales: FP8 (E4M3 or E5M2, a byte each)
// and FP4 (E2M1, two in a byte, the first one in its lower half).
//
//   value = code * (scale * second scale), or code * (scale / second scale)
//
// Both products are rounded to 32-bit floats, as the libraries that write such folders round them.
// The scales of a tensor W are in the tensor W_scale_inv or W_scale, the second ones in W_scale_2
// (a factor) or W_global_scale (a divisor). W itself may be named W_packed where it is FP4.
//
// Sources: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0;
// compressed-tensors 0.20 and the transformers library for names and shapes.
//
// Thread-safety: const after FindScaledSource.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/convert/folder_tensors.h"
#include "engine/convert/quantization.h"
#include "formats/safetensors.h"

namespace kvant::convert {

enum class SmallFloat : uint8_t { kE4M3, kE5M2, kE2M1Pairs };

// A tensor of numbers, as 32-bit floats.
struct ScaleTensor {
  const formats::SafetensorsTensor* tensor = nullptr;  // null: all are 1
  float (*read)(const std::byte* data, int64_t index) = nullptr;

  float At(int64_t index) const { return tensor == nullptr ? 1.0f : read(tensor->data, index); }
};

struct ScaledSource {
  const formats::SafetensorsTensor* values = nullptr;
  SmallFloat codes = SmallFloat::kE4M3;
  // Sizes of each matrix. The tensor may hold several, one behind the other.
  int64_t rows = 1;
  int64_t columns = 1;
  ScaleTensor scales = {};
  ScaleBlock block = {};        // what has one scale
  bool shared_scales = false;   // one scale for all matrices
  ScaleTensor seconds = {};     // one number for all matrices, or one for each
  bool second_divides = false;  // or else multiplies

  int64_t scales_of_row() const { return (columns + block.columns - 1) / block.columns; }
  int64_t scales_of_matrix() const {
    return (rows + block.rows - 1) / block.rows * scales_of_row();
  }

  // The number that multiplies all values of a matrix: the second scale, or 1 divided by it.
  float SecondFactor(int64_t matrix) const;

  // Writes values first, first + step, ..., counted over all matrices.
  void Read(int64_t first, int64_t count, int64_t step, float* out) const;

 private:
  float ScaleOf(int64_t matrix, int64_t row, int64_t column) const;
  float SecondOf(int64_t matrix) const;
};

// The tensor `hf_name` of the folder if it holds small floats; nothing if it is absent or holds
// others. Notes what it finds as used. `shape`: the tensor's, as config.json makes it.
//
// kCorrupt where scales are missing or the shapes do not fit; kNotSupported for a type of scales or
// codes that is none of those above.
Result<std::optional<ScaledSource>> FindScaledSource(const formats::SafetensorsModel& model,
                                                     const Quantization& quantization,
                                                     const std::string& hf_name,
                                                     const std::vector<int64_t>& shape,
                                                     FolderTensors& folder);

// FP4 with an exponent for each 32 values of a row. Neither tensor is checked.
ScaledSource MxFp4Source(const formats::SafetensorsTensor& codes,
                         const formats::SafetensorsTensor& exponents, int64_t rows,
                         int64_t columns);

}  // namespace kvant::convert
