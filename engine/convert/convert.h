// Converts a Hugging Face folder (config.json, safetensors, tokenizer files), or a CTranslate2
// folder of Whisper or of a translator (model.bin), to a GGUF file with the names, permutations and
// metadata that llama.cpp expects.
//
// The file streams: memory holds one tensor in its new form at a time, the source is mapped. The
// output appears under its name whole, or not at all. The same folder always gives the same bytes.
//
// Errors name the file and the key or tensor: kNotSupported for what GGUF or kvant cannot express,
// with the reason; kCorrupt for contradicting files; kIo; kInvalid for an output that is an input.
// Thread-safety: calls are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant::convert {

struct ConvertProgress {
  std::string_view tensor;  // about to be written
  uint64_t bytes_done = 0;  // of the output's tensor data
  uint64_t bytes_total = 0;
};

struct ConvertOptions {
  // The type of matrices: "f32", "f16", "bf16", "q8_0", or "" for the type that the folder has them
  // in, and where those are integers the type of its vectors. Vectors and norms are always F32.
  std::string type = {};
  std::string name = {};  // general.name; "" for the one that the folder suggests
  std::string task = {};  // whose adapters are merged, of a folder that has several; "": none
  int threads = 1;
  // Called before every tensor; an error ends the conversion with it. May be empty.
  std::function<Status(const ConvertProgress&)> on_progress = {};
};

struct ConvertSummary {
  std::string arch;
  std::string type = {};
  int64_t tensors = 0;
  int64_t parameters = 0;
  uint64_t data_bytes = 0;
};

Result<ConvertSummary> ConvertFolder(const std::string& folder, const std::string& output,
                                     const ConvertOptions& options);

// A class of Hugging Face's models that can be converted, and general.architecture of the file.
struct ConvertibleClass {
  std::string_view name;
  std::string_view arch;
};

// All of them, by name.
std::vector<ConvertibleClass> ConvertibleClasses();

}  // namespace kvant::convert
