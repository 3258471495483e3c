// NumPy .npy files (format version 1.0) of float32 values: a streaming writer for matrices and a
// strict reader, which knows float16 and float64, too. Source of the layout: numpy.lib.format.
//
// Errors: kIo; kCorrupt and kNotSupported with the file, what was expected and what was found.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"

namespace kvant::formats {

// Writes a matrix [rows, columns], rows in order. Thread-safety: none.
class NpyWriter {
 public:
  static Result<NpyWriter> Create(const std::string& path, int64_t rows, int64_t columns);

  // Appends whole rows.
  Status WriteRows(std::span<const float> values);

  // Gives the file its name. kInvalid unless exactly the promised rows were written; the file does
  // not appear then.
  Status Finish();

 private:
  OutputFile file_;
  std::string path_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t rows_written_ = 0;
};

struct NpyArray {
  std::vector<int64_t> shape;  // empty for a scalar
  std::vector<float> values;   // C order
};

// Reads little-endian float32, float16 or float64 in C order, any shape; float64 becomes the
// nearest float32.
Result<NpyArray> NpyRead(const std::string& path);
Result<NpyArray> NpyParse(std::span<const std::byte> bytes, const std::string& file);

}  // namespace kvant::formats
