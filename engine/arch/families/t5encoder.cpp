// The encoder of T5 alone (families/t5.cpp), which gives rows and writes no text.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_t5.h"

namespace kvant::arch::t5encoder {
namespace {

constexpr std::string_view kName = "t5encoder";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderAlone(metadata, {.norms = NormKind::kRms, .distances = true});
}

constexpr auto kCommon = Join(kHfT5Embedding, kHfT5Encoder);
constexpr auto kPlainTensors =
    Join(kCommon, kHfT5PlainEncoder, HfT5EncoderDistances(InLayers::kFirst));
constexpr auto kGatedTensors =
    Join(kCommon, kHfT5GatedEncoder, HfT5EncoderDistances(InLayers::kFirst));
constexpr auto kUmt5Tensors =
    Join(kCommon, kHfT5GatedEncoder, HfT5EncoderDistances(InLayers::kAll));

constexpr std::string_view kClasses[] = {"T5EncoderModel"};
constexpr std::string_view kMt5Classes[] = {"MT5EncoderModel"};
constexpr std::string_view kUmt5Classes[] = {"UMT5EncoderModel"};

constexpr HfFamily kHf[] = {
    OnlyIf(HfT5Family(kName, kClasses, kHfT5GatedNames, kGatedTensors), IsGatedHfT5),
    HfT5Family(kName, kClasses, kHfT5PlainNames, kPlainTensors),
    HfT5Family(kName, kMt5Classes, kHfT5GatedNames, kGatedTensors),
    HfT5Family(kName, kUmt5Classes, kHfT5GatedNames, kUmt5Tensors),
};

}  // namespace

extern const Family kFamily;
const Family kFamily = {
    .name = kName, .models = "T5 encoders, UMT5 encoders", .read = Read, .hf = kHf};

}  // namespace kvant::arch::t5encoder
