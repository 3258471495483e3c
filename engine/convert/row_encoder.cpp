#include "engine/convert/row_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "cpu/kernels/table.h"
#include "quant/formats/f32.h"
#include "quant/formats/mxfp4.h"
#include "quant/formats/nvfp4.h"

namespace kvant::convert {
namespace {

using arch::HfDelta;
using arch::RowOrder;
using quant::MXFP4;
using quant::NVFP4;

// The least divisor of a row, as torch.nn.functional.normalize has it.
constexpr double kLengthMin = 1e-12;

uint8_t* ScalesOf(MXFP4::Block& block) { return &block.exponent; }
uint8_t* ScalesOf(NVFP4::Block& block) { return block.scales; }

// Makes the blocks of a row of codes, two in a byte, and of its scales.
template <class Format>
void CopyBlocks(const std::byte* codes, const std::byte* scales, int64_t columns, std::byte* out) {
  constexpr int64_t kScaleBytes = sizeof(typename Format::Block) - Format::kBlockValues / 2;
  for (int64_t i = 0; i < columns / Format::kBlockValues; ++i) {
    typename Format::Block block = {};
    std::memcpy(ScalesOf(block), scales + i * kScaleBytes, kScaleBytes);
    for (int value = 0; value < Format::kBlockValues; ++value) {
      const std::byte byte = codes[(i * Format::kBlockValues + value) / 2];
      const int pair = std::to_integer<int>(byte);
      Format::Codes::Put(block.codes, value, value % 2 == 0 ? pair & 15 : pair >> 4);
    }
    std::memcpy(out + i * static_cast<int64_t>(sizeof(block)), &block, sizeof(block));
  }
}

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

// The values of a row of type T, divided in 32-bit floats.
template <class T>
void ReadAll(std::span<const std::byte> bytes, float divisor, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    out[i] = static_cast<float>(value) / divisor;
  }
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
  if (!tensor.scaled.empty()) {
    element_bytes_ = sizeof(float);
    source_format_ = quant::FindFormat(quant::F32::kName);
  }
  source_row_.resize(static_cast<size_t>(columns_ * element_bytes_));
}

void RowEncoder::Encode(int64_t row, std::byte* out) {
  if (tensor_.keeps_codes) return CopyCodes(row, out);
  CopySource(row);
  const bool same = tensor_.change == Values::kSame && tensor_.factors.empty();
  if (source_format_ == tensor_.format && same) {
    std::memcpy(out, source_row_.data(), source_row_.size());
    return;
  }
  if (source_format_ != nullptr) {
    source_format_->decode(source_row_.data(), values_.data(), columns_);
  } else {
    ReadOtherValues(row);
  }
  if (tensor_.change == Values::kPlusOne) {
    for (float& value : values_) value += 1.0f;
  } else if (tensor_.change == Values::kUnitRows) {
    DivideByLength();
  } else if (tensor_.change == Values::kMinusExp) {
    for (float& value : values_) value = -std::exp(value);
  } else if (tensor_.change == Values::kExp) {
    for (float& value : values_) value = std::exp(value);
  } else if (tensor_.change == Values::kRescaled) {
    for (float& value : values_) value *= tensor_.factor;
  }
  MultiplyByFactors(row);
  encode_({.format = tensor_.format,
           .values = values_.data(),
           .importance = nullptr,
           .rows = 1,
           .cols = columns_,
           .blocks = out});
}

// F64, or integers that a number divides.
void RowEncoder::ReadOtherValues(int64_t row) {
  const Source source = SourceOf(row);
  const std::byte* divisors = tensor_.sources[source.index]->row_divisors;
  if (divisors == nullptr) {
    return ReadAll<double>(source_row_, 1, values_);
  }
  float divisor = 1;
  std::memcpy(&divisor, divisors + source.row * static_cast<int64_t>(sizeof(divisor)),
              sizeof(divisor));
  if (element_bytes_ == 1) {
    ReadAll<int8_t>(source_row_, divisor, values_);
  } else {
    ReadAll<int16_t>(source_row_, divisor, values_);
  }
}

RowEncoder::Source RowEncoder::SourceOf(int64_t row) const {
  if (!tensor_.shard_rows.empty()) {
    const auto behind = std::ranges::upper_bound(tensor_.shard_rows, row);
    const auto shard = static_cast<size_t>(behind - tensor_.shard_rows.begin() - 1);
    return {shard, row - tensor_.shard_rows[shard]};
  }
  const int64_t expert = row / tensor_.expert_rows;
  const bool stacked = tensor_.sources.size() == 1;
  const int64_t within = SourceRow(row % tensor_.expert_rows, tensor_);
  return {stacked ? 0 : static_cast<size_t>(expert),
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

void RowEncoder::CopySource(int64_t row) {
  const Source source = SourceOf(row);
  if (tensor_.order == RowOrder::kLatentKeys) return CopyColumnOfHead(row);
  if (tensor_.order == RowOrder::kTiledColumns) return CopyTiledColumns(source);
  if (tensor_.order != RowOrder::kTransposed) {
    return CopyValues(source.index, {source.row * columns_, columns_}, 0);
  }
  const int64_t expert = source.row / tensor_.source_rows;
  const int64_t source_column = source.row % tensor_.source_rows;
  const int64_t matrix = expert * tensor_.source_rows * columns_;
  CopyValues(source.index, {matrix + source_column, columns_, tensor_.source_rows}, 0);
}

void RowEncoder::CopyTiledColumns(const Source& source) {
  const HfDelta& delta = tensor_.shape.delta;
  const int64_t row = source.row * columns_;
  for (int64_t head = 0; head < delta.value_heads; ++head) {
    const int64_t first = SourceOfTiled(head, delta) * delta.value_dim;
    CopyValues(source.index, {row + first, delta.value_dim}, head * delta.value_dim);
  }
}

// A row of a head is a column of its part of the source.
void RowEncoder::CopyColumnOfHead(int64_t row) {
  const int64_t source_columns = tensor_.expert_rows;
  const int64_t first_row = row / source_columns * tensor_.source_rows;
  CopyValues(0, {first_row * source_columns + row % source_columns, columns_, source_columns}, 0);
}

// Values become a part of the row. The file aligns nothing, so they are copied before they are
// read.
void RowEncoder::CopyValues(size_t source, const Stretch& values, int64_t to_column) {
  std::byte* out = source_row_.data() + to_column * element_bytes_;
  if (!tensor_.scaled.empty()) {
    // The buffer is as aligned as any that is allocated.
    return tensor_.scaled[source].Read(values.first, values.count, values.step,
                                       reinterpret_cast<float*>(out));
  }
  const std::byte* data = tensor_.sources[source]->data + values.first * element_bytes_;
  if (values.step == 1) {
    std::memcpy(out, data, static_cast<size_t>(values.count * element_bytes_));
    return;
  }
  for (int64_t i = 0; i < values.count; ++i) {
    std::memcpy(out + i * element_bytes_, data + i * values.step * element_bytes_,
                static_cast<size_t>(element_bytes_));
  }
}

// The folder has values 2i and 2i + 1 of a row in its byte i, the lower half first; the codes and
// the scales mean what they mean in the format.
void RowEncoder::CopyCodes(int64_t row, std::byte* out) const {
  const Source source = SourceOf(row);
  const ScaledSource& scaled = tensor_.scaled[source.index];
  const std::byte* codes = scaled.values->data + source.row * columns_ / 2;
  const std::byte* scales = scaled.scales.tensor->data + source.row * scaled.scales_of_row();
  if (tensor_.format->name == std::string_view(MXFP4::kName)) {
    CopyBlocks<MXFP4>(codes, scales, columns_, out);
  } else {
    CopyBlocks<NVFP4>(codes, scales, columns_, out);
  }
}

}  // namespace kvant::convert
