#include "formats/check_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/result.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

// A piece fits the cache of a core and is a multiple of every block.
constexpr int64_t kPieceValues = 8192;
static_assert(kPieceValues % quant::kBlockValuesMax == 0);

// Rows with a head are decoded whole.
void DecodePiece(const GgufTensor& tensor, int64_t begin, int64_t count, std::vector<float>& row,
                 float* values) {
  const quant::FormatTraits& format = *tensor.format;
  if (format.head_bytes == 0) {
    format.decode(tensor.data + begin / format.block_values * format.block_bytes, values, count);
    return;
  }
  const int64_t columns = tensor.dims[0];
  row.resize(static_cast<size_t>(columns));
  for (int64_t end = begin + count; begin < end;) {
    const int64_t number = begin / columns;
    const int64_t part = std::min(end, (number + 1) * columns) - begin;
    format.decode(tensor.data + number * tensor.row_bytes(), row.data(), columns);
    values = std::copy_n(row.begin() + begin % columns, part, values);
    begin += part;
  }
}

void CheckRange(const GgufTensor& tensor, const Range& range, NonFinite& found) {
  std::vector<float> row;
  std::vector<float> values(kPieceValues);
  for (int64_t begin = range.begin; begin < range.end; begin += kPieceValues) {
    const int64_t count = std::min(kPieceValues, range.end - begin);
    DecodePiece(tensor, begin, count, row, values.data());
    const int64_t first = FirstNonFinite(std::span(values.data(), static_cast<size_t>(count)));
    if (first < 0) continue;
    for (int64_t i = first; i < count; ++i) {
      const float value = values[static_cast<size_t>(i)];
      if (std::isfinite(value)) continue;
      if (found.count++ == 0) {
        found.first = begin + i;
        found.value = value;
      }
    }
  }
}

}  // namespace

int64_t FirstNonFinite(std::span<const float> values) {
  // The exponent bits are all ones in these alone, and then a one more carries into the sign bit.
  uint32_t carries = 0;
  for (const float value : values) {
    carries |= (std::bit_cast<uint32_t>(value) & 0x7fffffff) + 0x00800000;
  }
  if (carries >> 31 == 0) return -1;
  const auto first = std::find_if(values.begin(), values.end(),
                                  [](const float value) { return !std::isfinite(value); });
  return first - values.begin();
}

std::string_view NonFiniteName(float value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "infinity" : "-infinity";
}

NonFinite FindNonFinite(const GgufTensor& tensor, ThreadPool& pool) {
  std::vector<NonFinite> parts(static_cast<size_t>(pool.size()));
  pool.Run([&](const ThreadPool::Member& member) {
    const Range range = OwnedRange(tensor.n_values(), kPieceValues, member.index, member.count);
    CheckRange(tensor, range, parts[static_cast<size_t>(member.index)]);
  });
  NonFinite all;
  for (const NonFinite& part : parts) {
    if (part.count > 0 && (all.count == 0 || part.first < all.first)) {
      all.first = part.first;
      all.value = part.value;
    }
    all.count += part.count;
  }
  return all;
}

std::string DescribeNonFinite(const GgufTensor& tensor, const NonFinite& found) {
  return fmt::format(
      "tensor {}: {} of {} values {} not finite, the first is {} at row {}, column {}",
      Quoted(tensor.name), found.count, tensor.n_values(), found.count == 1 ? "is" : "are",
      NonFiniteName(found.value), found.first / tensor.dims[0], found.first % tensor.dims[0]);
}

Result<std::vector<TensorFinding>> CheckTensors(const GgufFile& file, ThreadPool& pool,
                                                const CheckProgress& progress) {
  std::vector<TensorFinding> findings;
  uint64_t done = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (progress) KVANT_TRY(progress(tensor, done));
    done += tensor.size_bytes;
    if (tensor.format == nullptr) continue;
    const NonFinite values = FindNonFinite(tensor, pool);
    if (values.count > 0) findings.push_back({&tensor, values});
  }
  return findings;
}

}  // namespace kvant::formats
