// Caches of other programs as safetensors files.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/result.h"
#include "engine/limits.h"
#include "formats/safetensors.h"
#include "kvant/kv_tensors.h"

namespace kvant {
namespace {

constexpr std::string_view kTokensName = "input_ids";

}  // namespace

Result<KvLayout> ParseKvLayout(std::string_view name) {
  if (name == "bhsd") return KvLayout::kBhsd;
  if (name == "kbhsd") return KvLayout::kKbhsd;
  if (name == "bkhsd") return KvLayout::kBkhsd;
  return MakeError(ErrorCode::kInvalid, "layout: expected bhsd, kbhsd or bkhsd, found \"{}\"",
                   name);
}

const KvTensor* KvTensors::Find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const KvTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Status WriteKvTensors(const std::string& path, const KvTensors& kv) {
  std::vector<int64_t> ids;
  for (const std::vector<TokenId>& row : kv.tokens) ids.insert(ids.end(), row.begin(), row.end());
  const int64_t batch = std::ssize(kv.tokens);
  std::vector<formats::SafetensorsContent> contents;
  contents.push_back({std::string(kTokensName),
                      "I64",
                      {batch, batch == 0 ? 0 : std::ssize(ids) / batch},
                      std::as_bytes(std::span(ids))});
  for (const KvTensor& tensor : kv.tensors) {
    contents.push_back({tensor.name, "F32", tensor.shape, std::as_bytes(std::span(tensor.values))});
  }
  return formats::WriteSafetensors(path, contents);
}

Result<KvTensors> ReadKvTensors(const std::string& path) {
  KVANT_ASSIGN(const auto file, formats::SafetensorsModel::OpenFile(path));
  KvTensors kv;
  bool has_tokens = false;
  for (const formats::SafetensorsTensor& tensor : file.tensors()) {
    const bool tokens = tensor.name == kTokensName;
    const std::string_view type = tokens ? "I64" : "F32";
    if (tensor.type->name != type || (tokens && tensor.shape.size() != 2)) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected {}{}, found {} {}", path,
                       tensor.name, type, tokens ? " [batch, length]" : "", tensor.type->name,
                       fmt::format("[{}]", fmt::join(tensor.shape, ", ")));
    }
    if (!tokens) {
      KvTensor& copy = kv.tensors.emplace_back();
      copy.name = tensor.name;
      copy.shape = tensor.shape;
      copy.values.resize(tensor.size_bytes / sizeof(float));
      if (tensor.size_bytes > 0) std::memcpy(copy.values.data(), tensor.data, tensor.size_bytes);
      continue;
    }
    if (tensor.shape[0] > kSequencesMax) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {}: expected at most {} sequences, found {}", path, tensor.name,
                       kSequencesMax, tensor.shape[0]);
    }
    has_tokens = true;
    const size_t length = static_cast<size_t>(tensor.shape[1]);
    for (size_t b = 0; b < static_cast<size_t>(tensor.shape[0]); ++b) {
      std::vector<TokenId>& row = kv.tokens.emplace_back();
      for (size_t i = 0; i < length; ++i) {
        int64_t id = 0;
        std::memcpy(&id, tensor.data + (b * length + i) * sizeof id, sizeof id);
        row.push_back(static_cast<TokenId>(std::clamp<int64_t>(id, -1, INT32_MAX)));
      }
    }
  }
  if (has_tokens) return kv;
  return MakeError(ErrorCode::kCorrupt, "{}: expected a tensor {}, found none", path, kTokensName);
}

}  // namespace kvant
