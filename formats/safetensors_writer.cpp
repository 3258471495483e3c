// Writing safetensors files (layout: formats/safetensors.h).
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "base/result.h"
#include "formats/safetensors.h"

namespace kvant::formats {
namespace {

// Data begin at a multiple of it, so that a mapped file has aligned values.
constexpr size_t kHeaderAlignment = 64;

}  // namespace

Status WriteSafetensors(const std::string& path, std::span<const SafetensorsContent> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t end = 0;
  for (const SafetensorsContent& tensor : tensors) {
    const uint64_t begin = end;
    end += tensor.data.size();
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  const size_t preamble = sizeof(uint64_t);
  while ((preamble + text.size()) % kHeaderAlignment != 0) text += ' ';
  const uint64_t header_bytes = text.size();
  KVANT_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVANT_TRY(file.Write(&header_bytes, sizeof header_bytes));
  KVANT_TRY(file.Write(text.data(), text.size()));
  for (const SafetensorsContent& tensor : tensors) KVANT_TRY(file.Write(tensor.data));
  return file.Commit();
}

}  // namespace kvant::formats
