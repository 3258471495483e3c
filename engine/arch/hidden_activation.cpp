#include "engine/arch/hidden_activation.h"

namespace kvant::arch {

Result<cpu::Activation> ReadHiddenActivation(const Metadata& metadata, cpu::Activation otherwise,
                                             const char* key) {
  KVANT_ASSIGN(const auto name, metadata.file().GetString(metadata.Key(key)));
  if (!name.has_value()) return otherwise;
  if (*name == "relu") return cpu::Activation::kRelu;
  if (*name == "relu2") return cpu::Activation::kReluSquared;
  if (*name == "gelu") return cpu::Activation::kGeluErf;
  if (*name == "gelu_new" || *name == "gelu_pytorch_tanh") return cpu::Activation::kGeluTanh;
  if (*name == "silu" || *name == "swish") return cpu::Activation::kSilu;
  if (*name == "tanh") return cpu::Activation::kTanh;
  return MakeError(ErrorCode::kNotSupported,
                   "{}: key {}: expected relu, relu2, gelu, gelu_new, silu or tanh, found \"{}\"",
                   metadata.file().path(), metadata.Key(key), *name);
}

}  // namespace kvant::arch
