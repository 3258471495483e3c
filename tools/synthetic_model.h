// Models of named shapes with random weights: what a machine does with a model of that size,
// without a download. Those without experts are Llama models, those with experts Qwen 3 MoE models,
// and those with latent attention DeepSeek V2 models, with keys and values in matrices of heads.
//
// Matrices are filled with blocks drawn at random from a few hundred that were encoded from numbers
// of a bell curve, so every row is another one, every block is a valid one, and gigabytes take
// seconds. The same model comes out everywhere, with any number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/quantize/recipe.h"

namespace kvant::tools {

struct SyntheticShape {
  std::string_view name;
  int64_t dim, layers, heads, kv_heads, ffn, vocab;
  int64_t head_dim = 0;  // 0: dim / heads
  int64_t experts = 0;   // of a layer, each `ffn` wide; 0: one feed-forward
  int64_t experts_used = 0;
  // Of latent attention, with a shared expert; 0: there is none.
  int64_t latent = 0;
  int64_t nope = 0;  // dimensions of a head that are not rotated, and those that are
  int64_t rope = 0;
  int64_t v_dim = 0;
  int64_t shared_ffn = 0;  // of the shared expert
  int64_t dense_ffn = 0;   // of the first layer, which has no experts

  int64_t HeadDim() const { return head_dim == 0 ? dim / heads : head_dim; }
};

struct SyntheticModel {
  const SyntheticShape* shape;
  const quantize::Recipe* recipe;

  std::string Name() const;  // "synthetic 1b Q4_0"
};

// "1b" or "1b:Q4_K_M": a shape, and a mix of formats as `kvant quantize` knows them, Q4_0 if none
// is named. kInvalid names the known ones.
Result<SyntheticModel> ParseSynthetic(std::string_view text);

uint64_t SyntheticBytes(const SyntheticModel& model);  // of all tensors

// Writes the model as a GGUF file.
Status WriteSynthetic(const SyntheticModel& model, const std::string& path, int threads);

// A file in memory, which is gone when nobody has it open or mapped any more.
class MemoryFile {
 public:
  static Result<MemoryFile> Create(const char* name);  // empty
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  MemoryFile& operator=(MemoryFile&&) = delete;

  std::string path() const;  // valid in this process

 private:
  explicit MemoryFile(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace kvant::tools
