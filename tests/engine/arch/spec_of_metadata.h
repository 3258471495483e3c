// Specifications read from metadata that a test makes: a file without tensors.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/arch/spec.h"
#include "formats/gguf.h"
#include "tests/engine/arch/attentions.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {

using formats::GgufWriter;

// The metadata of a small model, changed by `change`, read from a file without tensors.
inline Result<arch::ModelSpec> ReadSpecOf(const std::function<void(GgufWriter&)>& change,
                                          const std::string& family = "llama",
                                          const std::vector<std::string>& ignored_keys = {}) {
  GgufWriter writer;
  writer.AddString("general.architecture", family);
  writer.AddU32(family + ".context_length", 256);
  writer.AddU32(family + ".embedding_length", 64);
  writer.AddU32(family + ".block_count", 2);
  writer.AddU32(family + ".feed_forward_length", 96);
  writer.AddU32(family + ".attention.head_count", 4);
  writer.AddU32(family + ".attention.head_count_kv", 2);
  writer.AddF32(family + ".attention.layer_norm_rms_epsilon", 1e-5f);
  change(writer);
  const std::string path = TempPath("spec.gguf");
  KVANT_TRY(writer.Begin(path));
  KVANT_TRY(writer.Finish());
  auto file = formats::GgufFile::Open(path);
  std::filesystem::remove(path);
  if (!file.ok()) return file.error();
  return arch::ReadSpec(*file, ignored_keys);
}

inline const arch::Attention& AttentionOf(const arch::ModelSpec& spec, size_t layer) {
  return *test::Attentions(spec.stacks.front())[layer];
}

inline std::string SpecMessage(const std::function<void(GgufWriter&)>& change,
                               const std::string& family = "llama") {
  auto spec = ReadSpecOf(change, family);
  return spec.ok() ? "accepted" : spec.error().message;
}

}  // namespace kvant::test
