// M2M-100 (arXiv 2010.11125) and NLLB: layer norms before the sublayers, sines and cosines as
// positions, which the file holds.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"

namespace kvant::arch::m2m100 {
namespace {

constexpr std::string_view kName = "m2m100";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(metadata, {.positions = true});
}

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "M2M-100, NLLB", .read = Read, .hf = {}};

}  // namespace kvant::arch::m2m100
