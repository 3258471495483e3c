// Importance matrices: for each weight matrix, the sums of its squared input activations over a
// text, one per column. Quantizers weigh the error of a column by its mean.
//
// Both forms that exist are read and written; Read tells them apart by the first bytes.
//   dat   int32 entries; per entry int32 length and name, int32 calls, int32 count and that many
//         float32 (mean of squares * calls); then int32 chunks, int32 length and dataset name. The
//         last part is missing in old files. Written by llama.cpp until mid-2025 and ik_llama.cpp.
//   gguf  general.type "imatrix", imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size; per
//         entry the F32 tensors NAME.in_sum2 [columns, matrices] and NAME.counts [1, matrices].
//
// In memory counts are rows (tokens), as in the gguf form. A dat file does not say how many rows a
// call had; kImatrixChunkRows are assumed, which matters only when files of both forms are merged.
//
// Errors (kCorrupt, kNotSupported, kIo) name the file and the entry. Reading allocates at most a
// constant multiple of the file's size. Thread-safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::formats {

// The chunk size of llama-imatrix unless told otherwise.
inline constexpr uint32_t kImatrixChunkRows = 512;

struct ImatrixEntry {
  // Sums of squares, [matrices, columns]: one matrix per expert, one for a dense tensor.
  std::vector<double> sums;
  // Rows that each matrix has seen. One count may stand for all matrices: the dat form holds no
  // more.
  std::vector<int64_t> counts;
};

struct Imatrix {
  std::map<std::string, ImatrixEntry, std::less<>> entries;  // by tensor name
  std::vector<std::string> datasets;                         // names of the texts
  uint32_t chunk_count = 0;
  uint32_t chunk_size = kImatrixChunkRows;  // rows
  // Whether chunk_size and counts come from the file: a dat file has calls, and each is taken for
  // kImatrixChunkRows rows.
  bool rows_known = true;

  // The mean of squares per column, [dims[3] * dims[2], dims[0]] of the tensor; empty if there is
  // no entry of its name. An expert that has seen no row gets ones: every column counts the same.
  // kInvalid, naming the tensor and both sizes, if the entry belongs to a matrix of another shape.
  Result<std::vector<float>> Importance(const GgufTensor& tensor) const;

  // Adds the sums and counts of another matrix of the same model; datasets and chunks add up too.
  // kInvalid, naming the entry, for entries of different sizes; this matrix is then unchanged.
  Status Merge(const Imatrix& other);
};

enum class ImatrixForm : uint8_t { kDat, kGguf };

Result<Imatrix> ReadImatrix(const std::string& path);

// Parses a matrix from memory; `name` is used in messages.
Result<Imatrix> ParseImatrix(std::span<const std::byte> bytes, const std::string& name);

// The file appears whole or not at all. Entries without any row are left out; the dat form gives
// experts without rows ones. kInvalid if no entry is left, or a number does not fit the form.
Status WriteImatrix(const Imatrix& imatrix, const std::string& path, ImatrixForm form);

}  // namespace kvant::formats
