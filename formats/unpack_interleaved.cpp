#include "formats/unpack_interleaved.h"

#include <set>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "quant/interleaved/interleaved.h"

namespace kvant::formats {
namespace {

Result<AlignedBuffer> UnpackTensor(const GgufTensor& tensor, const quant::InterleavedType& type,
                                   ThreadPool& pool) {
  const int64_t cols = tensor.dims[0];
  const int64_t plain_bytes = type.format().row_bytes(cols);
  KVANT_ASSIGN(AlignedBuffer bytes,
               AlignedBuffer::Allocate(static_cast<size_t>(plain_bytes * tensor.rows()),
                                       "rows that lie interleaved in the file"));
  pool.Run([&](const ThreadPool::Member& member) {
    const Range range = OwnedRange(tensor.rows() / type.rows, 1, member.index, member.count);
    for (int64_t group = range.begin; group < range.end; ++group) {
      const int64_t row = group * type.rows;
      type.unpack(tensor.data + row * type.row_bytes(cols), cols, bytes.data() + row * plain_bytes);
    }
  });
  return bytes;
}

}  // namespace

Result<UnpackedTensors> UnpackInterleaved(GgufFile& file) {
  std::vector<std::string> names;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.format == nullptr) names.emplace_back(tensor.name);
  }
  UnpackedTensors unpacked;
  unpacked.tensors = names.size();
  if (names.empty()) return unpacked;
  ThreadPool pool(DefaultThreadCount());
  std::set<std::string> types;
  for (const std::string& name : names) {
    const GgufTensor tensor = *file.FindTensor(name);
    const auto* type = quant::FindInterleavedType(static_cast<uint32_t>(tensor.type));
    KVANT_ASSIGN(AlignedBuffer plain, UnpackTensor(tensor, *type, pool));
    file.ReplaceTensor(name, type->format(), std::move(plain));
    unpacked.bytes += file.FindTensor(name)->size_bytes;
    types.insert(type->name);
    if (!file.mappings().empty()) {
      file.mappings()[static_cast<size_t>(tensor.shard)].Release({tensor.data, tensor.size_bytes});
    }
  }
  for (const std::string& type : types) {
    unpacked.types += (unpacked.types.empty() ? "" : ", ") + type;
  }
  return unpacked;
}

}  // namespace kvant::formats
