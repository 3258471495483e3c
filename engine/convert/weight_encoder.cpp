// The bytes of the tensors of the file, their rows spread over threads.
#include <algorithm>

#include "base/check.h"
#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "engine/convert/row_encoder.h"
#include "engine/convert/weights.h"

namespace kvant::convert {
namespace {

using arch::RowOrder;
using formats::SafetensorsTensor;

// Bytes that are encoded at once: much for the threads to do, and little memory.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

// Whether the tensor's bytes are those of its source.
bool IsUnchanged(const OutputTensor& tensor) {
  const SafetensorsTensor& source = *tensor.sources.front();
  const bool all_rows = tensor.source_rows == tensor.expert_rows;
  return source.type->name == tensor.format->name && tensor.order == RowOrder::kSame &&
         tensor.change == Values::kSame && tensor.factors.empty() && tensor.sources.size() == 1 &&
         tensor.scaled.empty() && all_rows;
}

}  // namespace

Result<WeightEncoder> WeightEncoder::Create(int64_t row_bytes_max, int threads) {
  const int64_t bytes = std::max(kPieceBytes, row_bytes_max);
  KVANT_ASSIGN(AlignedBuffer buffer,
               AlignedBuffer::Allocate(static_cast<size_t>(bytes), "pieces of tensors"));
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  return WeightEncoder(std::move(buffer), *kernels, threads);
}

Status WeightEncoder::Write(const OutputTensor& tensor, formats::GgufWriter& writer) {
  if (tensor.sources.empty()) return writer.WriteTensor(std::as_bytes(std::span(tensor.values)));
  if (IsUnchanged(tensor)) {
    return writer.WriteTensor(
        {tensor.sources.front()->data, static_cast<size_t>(tensor.size_bytes())});
  }
  const RowEncoder rows(tensor, kernels_);
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / rows.row_bytes());
  for (int64_t begin = 0; begin < rows.rows(); begin += piece) {
    KVANT_TRY(writer.WriteRest(Encode(tensor, begin, std::min(rows.rows(), begin + piece))));
  }
  return {};
}

std::span<const std::byte> WeightEncoder::Encode(const OutputTensor& tensor, int64_t begin,
                                                 int64_t end) {
  int64_t row_bytes = 0;
  pool_->Run([&](const ThreadPool::Member& member) {
    RowEncoder encoder(tensor, kernels_);
    if (member.index == 0) row_bytes = encoder.row_bytes();
    const Range range = OwnedRange(end - begin, 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      encoder.Encode(begin + row, buffer_.data() + row * encoder.row_bytes());
    }
  });
  const auto size = static_cast<size_t>((end - begin) * row_bytes);
  KVANT_CHECK(size <= buffer_.size());
  return {buffer_.data(), size};
}

}  // namespace kvant::convert
