// M2M-100 (arXiv 2010.11125) and NLLB: layer norms before the sublayers, sines and cosines as
// positions, which the file holds.
#include <cmath>

#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::m2m100 {
namespace {

constexpr std::string_view kName = "m2m100";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(metadata, {.positions = true});
}

// The first position of a text: rows up to that of the padding token are never read.
constexpr int64_t kFirstPosition = 2;

// As M2M100SinusoidalPositionalEmbedding of transformers computes them, in 32-bit floats: sines,
// then cosines, and a last 0 where the number of columns is odd.
float Position(int64_t position, int64_t column, int64_t dim) {
  const int64_t half = dim / 2;
  if (column >= 2 * half) return 0;
  const auto step = static_cast<float>(std::log(10000.0) / static_cast<double>(half - 1));
  const float rate = std::exp(static_cast<float>(column % half) * -step);
  const float angle = static_cast<float>(position + kFirstPosition) * rate;
  return column < half ? std::sin(angle) : std::cos(angle);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  constexpr const char* kKey = "pad_token_id";
  KVANT_ASSIGN(const auto pad, config.Integer(kKey, shape.vocab - 1));
  if (pad.value_or(1) != kFirstPosition - 1) return config.Wrong(kKey, "1");
  if (shape.dim < 4) return config.Wrong("d_model", "4 or more");
  AddHfPositions(shape, Position, out);
  return AddHfTwoStacks(config, shape, out);
}

constexpr std::string_view kClasses[] = {"M2M100ForConditionalGeneration"};

constexpr auto kTensors = Join(kHfTwoStacks, kHfTwoStacksFinalNorms);

constexpr HfFamily WithOwnIds(HfFamily row) {
  row.ids_in_another_file = true;
  return row;
}

constexpr HfFamily kHf[] = {
    WithOwnIds(HfTwoStacksFamily(kName, kClasses, kTensors, AddParameters))};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "M2M-100, NLLB", .read = Read, .hf = kHf};

}  // namespace kvant::arch::m2m100
