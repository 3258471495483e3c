// The tensors of the file to be written: which tensor of the folder each is made of, in which
// format and with which order of rows; and the making of one at a time.
//
// Thread-safety: planning is pure; a WeightEncoder belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/convert/output_tensor.h"
#include "engine/convert/quantization.h"
#include "formats/gguf_writer.h"
#include "formats/json_object.h"
#include "formats/safetensors.h"
#include "quant/format.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::convert {

using arch::ComputedTensor;
using arch::HfFamily;
using formats::JsonObject;

// How matrices are stored. Vectors and norms are always F32.
struct OutputType {
  std::string_view name;         // "bf16"
  std::string_view format_name;  // "BF16"
  uint32_t file_type;            // general.file_type, as llama.cpp numbers them
};

// The row of a name, or null.
const OutputType* FindOutputType(std::string_view name);

// All tensors, in the order of the family's list, computed ones first. kCorrupt for one that is
// missing or has another shape than config.json says; kNotSupported for one that the family does
// not know and for element types that are no floats. Logs a warning for matrices whose rows the
// type cannot hold; they become F16. Matrices in MXFP4, and those in NVFP4 that a block of GGUF can
// hold exactly, keep their codes whatever the type; a matrix X.weight in NVFP4 has its second scale
// in X.scale. Other small floats with scales are multiplied out in 32-bit floats. kNotSupported for
// integers of the folder that differ from the known ones.
Result<std::vector<OutputTensor>> PlanWeights(const HfFamily& family, const JsonObject& config,
                                              const HfShape& shape,
                                              const formats::SafetensorsModel& model,
                                              const Quantization& quantization,
                                              const OutputType& type,
                                              std::vector<ComputedTensor> computed,
                                              const std::vector<arch::KnownIntegers>& integers);

// The type that holds the folder's first plain matrix unchanged, f32 where there is none. Where
// matrices are integers with scales, the type of the first tensor of floats. Never null.
const OutputType* NaturalOutputType(const formats::SafetensorsModel& model,
                                    const Quantization& quantization);

// Writes the bytes of tensors piece by piece: a tensor may be larger than memory.
class WeightEncoder {
 public:
  // `row_bytes_max`: of a row of the tensors to come.
  static Result<WeightEncoder> Create(int64_t row_bytes_max, int threads);

  // Writes the tensor that is the writer's next. Where nothing changes, its bytes are those of the
  // folder's file.
  Status Write(const OutputTensor& tensor, formats::GgufWriter& writer);

 private:
  // Encodes the rows [begin, end) to the beginning of the buffer.
  std::span<const std::byte> Encode(const OutputTensor& tensor, int64_t begin, int64_t end);

  WeightEncoder(AlignedBuffer buffer, const cpu::KernelTable& kernels, int threads)
      : buffer_(std::move(buffer)),
        kernels_(kernels),
        pool_(std::make_unique<ThreadPool>(threads)) {}

  AlignedBuffer buffer_;
  const cpu::KernelTable& kernels_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace kvant::convert
