// T5 (arXiv 1910.10683): RMS norms without a mean, no biases, a learned number for each distance in
// place of positions, scores that are not scaled; version 1.1 (Flan-T5, mT5, UMT5) with gated
// feed-forwards and an output of its own. UMT5 has such numbers in every layer.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"

namespace kvant::arch::t5 {
namespace {

constexpr std::string_view kName = "t5";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata, {.norms = NormKind::kRms, .distances = true, .scale_tied_output = true});
}

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "T5, Flan-T5, mT5, UMT5", .read = Read, .hf = {}};

}  // namespace kvant::arch::t5
