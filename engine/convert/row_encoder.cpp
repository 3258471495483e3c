#include "engine/convert/row_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/kernels/table.h"
#include "quant/formats/mxfp4.h"

namespace kvant::convert {
namespace {

using arch::HfDelta;
using arch::RowOrder;
using quant::MXFP4;

// The least divisor of a row, as torch.nn.functional.normalize has it.
constexpr double kLengthMin = 1e-12;

// The source row of row `row` in RowOrder::kGroupedQkv.
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

// The value head of the model that becomes head `head` where key heads take turns.
int64_t SourceOfTiled(int64_t head, const HfDelta& delta) {
  return head % delta.key_heads * delta.per_key() + head / delta.key_heads;
}

// The source row of row `row` in RowOrder::kTiledValues and kTiledQkv.
int64_t SourceOfTiledValues(int64_t row, int64_t first, const HfDelta& delta) {
  if (row < first) return row;
  const int64_t head = (row - first) / delta.value_dim;
  return first + SourceOfTiled(head, delta) * delta.value_dim + (row - first) % delta.value_dim;
}

// The source row of row `row` of the values or gates, in RowOrder::kDeltaQkv and kDeltaGates;
// `first` is the place of the values or gates among the rows of a key head.
int64_t SourceOfDeltaValues(int64_t row, int64_t first, const HfDelta& delta) {
  const int64_t of_key = delta.per_key() * delta.value_dim;
  return row / of_key * 2 * (delta.key_dim + of_key) + first + row % of_key;
}

int64_t SourceOfDeltaQkv(int64_t row, const HfDelta& delta) {
  if (row >= 2 * delta.keys()) {
    return SourceOfDeltaValues(row - 2 * delta.keys(), 2 * delta.key_dim, delta);
  }
  const int64_t side = row / delta.keys();
  const int64_t head = row % delta.keys() / delta.key_dim;
  const int64_t of_head = 2 * (delta.key_dim + delta.per_key() * delta.value_dim);
  return head * of_head + side * delta.key_dim + row % delta.key_dim;
}

// The source row of row `row` in RowOrder::kPairsInterleaved.
int64_t SourceOfPairs(int64_t row, int64_t head_rows) {
  const int64_t head = row / head_rows;
  const int64_t within = row % head_rows;
  return head * head_rows + within % 2 * (head_rows / 2) + within / 2;
}

// The row of the source, or of an expert in it, that becomes row `row`.
int64_t SourceRow(int64_t row, const OutputTensor& tensor) {
  const RowOrder order = tensor.order;
  const HfDelta& delta = tensor.shape.delta;
  switch (order) {
    case RowOrder::kDeltaQkv: return SourceOfDeltaQkv(row, delta);
    case RowOrder::kDeltaGates:
      return SourceOfDeltaValues(row, 2 * delta.key_dim + delta.per_key() * delta.value_dim, delta);
    case RowOrder::kTiledHeads: return SourceOfTiled(row, delta);
    case RowOrder::kTiledValues: return SourceOfTiledValues(row, 0, delta);
    case RowOrder::kFirstBeyond: return row < tensor.source_rows ? row : 0;
    case RowOrder::kTiledQkv: return SourceOfTiledValues(row, 2 * delta.keys(), delta);
    default: break;
  }
  if (order == RowOrder::kPairsInterleaved || order == RowOrder::kGroupedPairs) {
    row = SourceOfPairs(row, tensor.shape.head_dim);
  }
  row = tensor.first_row + row * tensor.row_step;
  const bool grouped = order == RowOrder::kGroupedQkv || order == RowOrder::kGroupedPairs;
  return grouped ? SourceOfGrouped(row, tensor.shape) : row;
}

}  // namespace

RowEncoder::RowEncoder(const OutputTensor& tensor, const cpu::KernelTable& kernels)
    : tensor_(tensor),
      encode_(kernels.encode[static_cast<size_t>(quant::FormatIndex(*tensor.format))]),
      rows_(tensor.split_values ? tensor.rows() * tensor.columns() : tensor.rows()),
      columns_(tensor.split_values ? 1 : tensor.columns()),
      element_bytes_(tensor.sources.front()->type->bytes),
      source_format_(quant::FindFormat(tensor.sources.front()->type->name)) {
  values_.resize(static_cast<size_t>(columns_));
  source_row_.resize(static_cast<size_t>(columns_ * element_bytes_));
}

void RowEncoder::Encode(int64_t row, std::byte* out) {
  const int64_t row_bytes = tensor_.format->row_bytes(columns_);
  if (tensor_.scales != nullptr) return RepackMxfp4(row, out + row * row_bytes);
  CopySource(row);
  const bool same = tensor_.change == Values::kSame && tensor_.factors.empty();
  if (source_format_ == tensor_.format && same) {
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
  } else if (tensor_.change == Values::kMinusExp) {
    for (float& value : values_) value = -std::exp(value);
  } else if (tensor_.change == Values::kRescaled) {
    for (float& value : values_) value *= tensor_.factor;
  }
  MultiplyByFactors(row);
  encode_({.format = tensor_.format,
           .values = values_.data(),
           .importance = nullptr,
           .rows = 1,
           .cols = columns_,
           .blocks = out + row * row_bytes});
}

RowEncoder::Source RowEncoder::SourceOf(int64_t row) const {
  const int64_t expert = row / tensor_.expert_rows;
  const bool stacked = tensor_.sources.size() == 1;
  const int64_t within = SourceRow(row % tensor_.expert_rows, tensor_);
  return {tensor_.sources[stacked ? 0 : static_cast<size_t>(expert)],
          (stacked ? expert * tensor_.source_rows : 0) + within};
}

// Factors multiply rows, or the single values of a vector that is one row.
void RowEncoder::MultiplyByFactors(int64_t row) {
  const bool by_values = tensor_.dims.size() == 1 && !tensor_.split_values;
  int64_t begin = 0;
  for (const auto& [rows, factor] : tensor_.factors) {
    const int64_t end = begin + rows;
    if (by_values) {
      for (int64_t i = begin; i < end; ++i) values_[static_cast<size_t>(i)] *= factor;
    } else if (row >= begin && row < end) {
      for (float& value : values_) value *= factor;
    }
    begin = end;
  }
}

void RowEncoder::DivideByLength() {
  double squares = 0;
  for (const float value : values_) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const double length = std::max(std::sqrt(squares), kLengthMin);
  for (float& value : values_) value = static_cast<float>(static_cast<double>(value) / length);
}

// The file aligns nothing, so a row is copied before its values are read.
void RowEncoder::CopySource(int64_t row) {
  const Source source = SourceOf(row);
  if (tensor_.order == RowOrder::kLatentKeys) return CopyColumnOfHead(row);
  if (tensor_.order != RowOrder::kTransposed) {
    return CopyColumns(source.tensor->data + source.row * columns_ * element_bytes_);
  }
  const int64_t expert = source.row / tensor_.source_rows;
  const int64_t source_column = source.row % tensor_.source_rows;
  const std::byte* matrix =
      source.tensor->data + expert * tensor_.source_rows * columns_ * element_bytes_;
  for (int64_t column = 0; column < columns_; ++column) {
    std::memcpy(source_row_.data() + column * element_bytes_,
                matrix + (column * tensor_.source_rows + source_column) * element_bytes_,
                static_cast<size_t>(element_bytes_));
  }
}

void RowEncoder::CopyColumns(const std::byte* row) {
  if (tensor_.order != RowOrder::kTiledColumns) {
    std::memcpy(source_row_.data(), row, source_row_.size());
    return;
  }
  const HfDelta& delta = tensor_.shape.delta;
  const int64_t bytes = delta.value_dim * element_bytes_;
  for (int64_t head = 0; head < delta.value_heads; ++head) {
    std::memcpy(source_row_.data() + head * bytes, row + SourceOfTiled(head, delta) * bytes,
                static_cast<size_t>(bytes));
  }
}

// A row of a head is a column of its part of the source.
void RowEncoder::CopyColumnOfHead(int64_t row) {
  const int64_t head = row / tensor_.expert_rows;
  const int64_t source_column = row % tensor_.expert_rows;
  const std::byte* data = tensor_.sources.front()->data;
  for (int64_t column = 0; column < columns_; ++column) {
    const int64_t source_row = head * tensor_.source_rows + column;
    std::memcpy(source_row_.data() + column * element_bytes_,
                data + (source_row * tensor_.expert_rows + source_column) * element_bytes_,
                static_cast<size_t>(element_bytes_));
  }
}

// The folder has values 2i and 2i + 1 of a block in its byte i, the lower half first; the codes and
// the exponents mean the same.
void RowEncoder::RepackMxfp4(int64_t row, std::byte* out) const {
  constexpr int64_t kCodeBytes = MXFP4::kBlockValues / 2;
  const Source source = SourceOf(row);
  const int64_t blocks = columns_ / MXFP4::kBlockValues;
  const std::byte* codes = source.tensor->data + source.row * blocks * kCodeBytes;
  const std::byte* exponents = tensor_.scales->data + source.row * blocks;
  for (int64_t i = 0; i < blocks; ++i) {
    MXFP4::Block block = {};
    block.exponent = std::to_integer<uint8_t>(exponents[i]);
    for (int value = 0; value < MXFP4::kBlockValues; ++value) {
      const auto pair = std::to_integer<uint8_t>(codes[i * kCodeBytes + value / 2]);
      MXFP4::Codes::Put(block.codes, value, value % 2 == 0 ? pair & 15 : pair >> 4);
    }
    std::memcpy(out + i * static_cast<int64_t>(sizeof(block)), &block, sizeof(block));
  }
}

}  // namespace kvant::convert
