// Marian (arXiv 1804.00344): layer norms of the sums, sines and cosines as positions, which the
// file holds.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"

namespace kvant::arch::marian {
namespace {

constexpr std::string_view kName = "marian";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata,
      {.place = NormPlace::kAfterSum, .positions = true, .activation = cpu::Activation::kSilu});
}

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Marian (opus-mt)", .read = Read, .hf = {}};

}  // namespace kvant::arch::marian
