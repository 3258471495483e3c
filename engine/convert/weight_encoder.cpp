// The bytes of a tensor of the file: rows of the folder's tensors in another order or form.
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/result.h"
#include "engine/convert/weights.h"

namespace kvant::convert {
namespace {

using arch::HfShape;
using arch::RowOrder;
using formats::SafetensorsTensor;

// What rows are divided by at least, as torch.nn.functional.normalize does.
constexpr double kLengthMin = 1e-12;

// Of RowOrder::kGroupedQkv.
int64_t SourceOfGrouped(int64_t row, const HfShape& shape) {
  const int64_t head = row / shape.head_dim;
  const int64_t per_kv = shape.heads / shape.kv_heads;
  int64_t kv_head = head / per_kv;
  int64_t within = head % per_kv;
  if (head >= shape.heads) {
    kv_head = (head - shape.heads) % shape.kv_heads;
    within = per_kv + (head - shape.heads) / shape.kv_heads;
  }
  return (kv_head * (per_kv + 2) + within) * shape.head_dim + row % shape.head_dim;
}

// Of RowOrder::kPairsInterleaved.
int64_t SourceOfPairs(int64_t row, int64_t head_rows) {
  const int64_t head = row / head_rows;
  const int64_t within = row % head_rows;
  return head * head_rows + within % 2 * (head_rows / 2) + within / 2;
}

// The row of the source that becomes row `row`.
int64_t SourceRow(int64_t row, const OutputTensor& tensor) {
  const RowOrder order = tensor.order;
  if (order == RowOrder::kPairsInterleaved || order == RowOrder::kGroupedPairs) {
    row = SourceOfPairs(row, tensor.shape.head_dim);
  }
  row += tensor.first_row;
  const bool grouped = order == RowOrder::kGroupedQkv || order == RowOrder::kGroupedPairs;
  return grouped ? SourceOfGrouped(row, tensor.shape) : row;
}

// Makes rows of one tensor. A vector (a bias) is a matrix of one column here.
class RowEncoder {
 public:
  RowEncoder(const OutputTensor& tensor, const cpu::KernelTable& kernels)
      : tensor_(tensor),
        encode_(kernels.encode[static_cast<size_t>(quant::FormatIndex(*tensor.format))]),
        rows_(tensor.rows()),
        columns_(tensor.columns()),
        element_bytes_(tensor.sources.front()->type->bytes) {
    if (tensor.dims.size() == 1) std::swap(rows_, columns_);
    source_format_ = quant::FindFormat(tensor.sources.front()->type->name);  // null for F64
    values_.resize(static_cast<size_t>(columns_));
    source_row_.resize(static_cast<size_t>(columns_ * element_bytes_));
  }

  int64_t rows() const { return rows_; }

  void Encode(int64_t row, std::byte* out) {
    CopySource(row);
    const int64_t row_bytes = tensor_.format->row_bytes(columns_);
    if (source_format_ == tensor_.format && tensor_.change == Values::kSame) {
      std::memcpy(out + row * row_bytes, source_row_.data(), source_row_.size());
      return;
    }
    if (source_format_ != nullptr) {
      source_format_->decode(source_row_.data(), values_.data(), columns_);
    } else {
      for (size_t i = 0; i < values_.size(); ++i) {
        double value = 0;
        std::memcpy(&value, source_row_.data() + i * sizeof(value), sizeof(value));
        values_[i] = static_cast<float>(value);
      }
    }
    if (tensor_.change == Values::kPlusOne) {
      for (float& value : values_) value += 1.0f;
    } else if (tensor_.change == Values::kUnitRows) {
      DivideByLength();
    }
    encode_({.format = tensor_.format,
             .values = values_.data(),
             .importance = nullptr,
             .rows = 1,
             .cols = columns_,
             .blocks = out + row * row_bytes});
  }

 private:
  void DivideByLength() {
    double squares = 0;
    for (const float value : values_)
      squares += static_cast<double>(value) * static_cast<double>(value);
    const double length = std::max(std::sqrt(squares), kLengthMin);
    for (float& value : values_) value = static_cast<float>(static_cast<double>(value) / length);
  }

  // Which source has the row: they are one, one for each expert, or one for each row.
  const SafetensorsTensor& SourceOf(int64_t row, int64_t expert) const {
    const size_t count = tensor_.sources.size();
    if (count == 1) return *tensor_.sources.front();
    return *tensor_.sources[static_cast<size_t>(tensor_.dims.size() > 2 ? expert : row)];
  }

  // The file aligns nothing, so a row is copied before it is read as numbers.
  void CopySource(int64_t row) {
    const bool of_experts = tensor_.dims.size() > 2;
    const int64_t expert = of_experts ? row / tensor_.matrix_rows() : 0;
    const int64_t within = of_experts ? row % tensor_.matrix_rows() : row;
    const std::byte* data = SourceOf(row, expert).data;
    const bool stacked = tensor_.sources.size() == 1;
    if (!stacked && !of_experts) {
      std::memcpy(source_row_.data(), data, source_row_.size());
      return;
    }
    const int64_t rows_before = stacked ? expert * tensor_.source_rows : 0;
    if (tensor_.order != RowOrder::kTransposed) {
      const int64_t source_row = rows_before + SourceRow(within, tensor_);
      std::memcpy(source_row_.data(), data + source_row * columns_ * element_bytes_,
                  source_row_.size());
      return;
    }
    for (int64_t column = 0; column < columns_; ++column) {
      const int64_t place =
          rows_before * columns_ + column * tensor_.source_rows + tensor_.first_row + within;
      std::memcpy(source_row_.data() + column * element_bytes_, data + place * element_bytes_,
                  static_cast<size_t>(element_bytes_));
    }
  }

  const OutputTensor& tensor_;
  cpu::EncodeFunction encode_;
  int64_t rows_;
  int64_t columns_;
  int64_t element_bytes_;
  const quant::FormatTraits* source_format_;
  std::vector<float> values_;
  std::vector<std::byte> source_row_;
};

}  // namespace

Result<WeightEncoder> WeightEncoder::Create(int64_t bytes_max, int threads) {
  KVANT_ASSIGN(AlignedBuffer buffer,
               AlignedBuffer::Allocate(static_cast<size_t>(bytes_max), "the largest tensor"));
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  return WeightEncoder(std::move(buffer), *kernels, threads);
}

std::span<const std::byte> WeightEncoder::Encode(const OutputTensor& tensor) {
  if (tensor.sources.empty()) return std::as_bytes(std::span(tensor.values));
  const auto size = static_cast<size_t>(tensor.size_bytes());
  const SafetensorsTensor& source = *tensor.sources.front();
  const bool unchanged =
      source.type->name == tensor.format->name && tensor.order == RowOrder::kSame &&
      tensor.change == Values::kSame && tensor.sources.size() == 1 &&
      tensor.source_rows == (tensor.dims.size() > 1 ? tensor.matrix_rows() : tensor.columns());
  if (unchanged) return {source.data, size};
  KVANT_CHECK(size <= buffer_.size());
  pool_->Run([&](const ThreadPool::Member& member) {
    RowEncoder encoder(tensor, kernels_);
    const Range range = OwnedRange(encoder.rows(), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) encoder.Encode(row, buffer_.data());
  });
  return {buffer_.data(), size};
}

}  // namespace kvant::convert
