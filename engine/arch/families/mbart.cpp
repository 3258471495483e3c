// mBART (arXiv 2001.08210): BART with norms before the sublayers.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"

namespace kvant::arch::mbart {
namespace {

constexpr std::string_view kName = "mbart";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata,
      {.embedding_norms = true, .positions = true, .activation = cpu::Activation::kGeluErf});
}

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "mBART, mBART-50", .read = Read, .hf = {}};

}  // namespace kvant::arch::mbart
