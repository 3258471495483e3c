// Marian (arXiv 1804.00344): layer norms of the sums, sines and cosines as positions, which the
// file holds.
#include <cmath>

#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::marian {
namespace {

constexpr std::string_view kName = "marian";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata,
      {.place = NormPlace::kAfterSum, .positions = true, .activation = cpu::Activation::kSilu});
}

// Sines in the first half of the columns, cosines in the second, of wavelengths from 2 pi to 10,000
// times as much (MarianSinusoidalPositionalEmbedding in transformers).
float Position(int64_t position, int64_t column, int64_t dim) {
  const int64_t sines = (dim + 1) / 2;
  const int64_t pair = column < sines ? column : column - sines;
  const double angle = static_cast<double>(position) /
                       std::pow(10000.0, 2 * static_cast<double>(pair) / static_cast<double>(dim));
  return static_cast<float>(column < sines ? std::sin(angle) : std::cos(angle));
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  AddHfPositions(shape, Position, out);
  return AddHfTwoStacks(config, shape, out);
}

constexpr std::string_view kClasses[] = {"MarianMTModel"};

constexpr auto kTensors = Join(kHfTwoStacks);

constexpr HfFamily WithOwnIds(HfFamily row) {
  row.ids_in_another_file = true;
  return row;
}

constexpr HfFamily kHf[] = {
    WithOwnIds(HfTwoStacksFamily(kName, kClasses, kTensors, AddParameters))};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Marian (opus-mt)", .read = Read, .hf = kHf};

}  // namespace kvant::arch::marian
