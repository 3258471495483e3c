// Readers of families whose graph is also that of families with another name in their files.
#pragma once

#include "base/result.h"
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

namespace hunyuan_dense {
Result<ModelSpec> Read(const Metadata& metadata);
}  // namespace hunyuan_dense

}  // namespace kvant::arch
