// BART (arXiv 1910.13461): layer norms of the sums and of the embeddings, learned positions, biases
// everywhere.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::bart {
namespace {

constexpr std::string_view kName = "bart";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(metadata, {.place = NormPlace::kAfterSum,
                                       .embedding_norms = true,
                                       .positions = true,
                                       .activation = cpu::Activation::kGeluErf});
}

constexpr std::string_view kClasses[] = {"BartForConditionalGeneration"};

constexpr auto kTensors = Join(kHfTwoStacks, kHfTwoStacksPositions, kHfTwoStacksEmbeddingNorms);

constexpr HfFamily kHf[] = {HfTwoStacksFamily(kName, kClasses, kTensors)};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "BART", .read = Read, .hf = kHf};

}  // namespace kvant::arch::bart
