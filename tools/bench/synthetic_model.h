// Models of named shapes with random weights: what a machine does with a model of that size,
// without a download.
//
// Matrices are filled with blocks drawn at random from a few hundred that were encoded from normal
// values. So no two rows are equal, every block is valid, and gigabytes take seconds. Every machine
// and any number of threads give the same model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/quantize/recipe.h"
#include "tools/bench/synthetic_shapes.h"

namespace kvant::tools {

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
