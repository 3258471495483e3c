// mBART (arXiv 2001.08210): BART with norms before the sublayers.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::mbart {
namespace {

constexpr std::string_view kName = "mbart";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata,
      {.embedding_norms = true, .positions = true, .activation = cpu::Activation::kGeluErf});
}

constexpr std::string_view kClasses[] = {"MBartForConditionalGeneration"};

constexpr auto kTensors =
    Join(kHfTwoStacks, kHfTwoStacksPositions, kHfTwoStacksEmbeddingNorms, kHfTwoStacksFinalNorms);

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kHfTwoStacksActivation,
    .keys = kHfTwoStacksKeys,
    .epsilon = kHfTwoStacksEpsilon,
    .finish_shape = ReadHfDecoder,
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddHfTwoStacks,
    .embedding_names = kHfTwoStacksEmbeddings,
    .tied_unless_told = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "mBART, mBART-50", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mbart
