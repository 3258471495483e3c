// The bytes of a tensor of the file, its rows spread over threads.
#include "base/check.h"
#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "engine/convert/row_encoder.h"
#include "engine/convert/weights.h"

namespace kvant::convert {

using arch::RowOrder;
using formats::SafetensorsTensor;

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
  const bool all_rows = tensor.source_rows == tensor.expert_rows;
  const bool unchanged = source.type->name == tensor.format->name &&
                         tensor.order == RowOrder::kSame && tensor.change == Values::kSame &&
                         tensor.factors.empty() && tensor.sources.size() == 1 &&
                         tensor.scaled.empty() && all_rows;
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
