// Readers of families whose graph is also that of families with another name in their files.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

namespace qwen2 {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace qwen2

namespace qwen3 {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace qwen3

namespace qwen3moe {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace qwen3moe

namespace dots1 {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace dots1

namespace nemotron {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace nemotron

namespace starcoder2 {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace starcoder2

namespace gpt2 {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace gpt2

namespace ernie4_5 {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace ernie4_5

namespace deepseek32 {
// Reads layers with indexers, whose rope has a style of its own; `own` says which layers have one,
// and nothing that all have.
Result<ModelSpec> ReadIndexed(const Metadata& metadata, cpu::RopeStyle index_style,
                              std::optional<std::vector<bool>> own);
}  // namespace deepseek32

namespace hunyuan_dense {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace hunyuan_dense

}  // namespace kvant::arch
