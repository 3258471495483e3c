// Whisper (arXiv 2212.04356): an encoder of frames of sound, with the sines of its positions in the
// file, and a decoder with learned positions; layer norms before the sublayers, no bias of keys.
#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::whisper {
namespace {

constexpr std::string_view kName = "whisper";

constexpr int64_t kBinsMax = 1 << 12;

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata, {.positions = true, .frames = true, .activation = cpu::Activation::kGeluErf});
}

constexpr auto kEnds = std::array{
    HfMatrix("model.decoder.embed_tokens.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfOutput("proj_out.weight").front(),
    HfMatrix("model.encoder.conv1.weight", "enc.conv1d.0.weight", Extent::kDim,
             Extent::kThreeFrames),
    HfBias("model.encoder.conv1.bias", "enc.conv1d.0.bias", Extent::kDim),
    HfMatrix("model.encoder.conv2.weight", "enc.conv1d.1.weight", Extent::kDim, Extent::kThreeRows),
    HfBias("model.encoder.conv2.bias", "enc.conv1d.1.bias", Extent::kDim),
    HfMatrix("model.encoder.embed_positions.weight", "enc.position_embd.weight", Extent::kSource,
             Extent::kDim),
    HfMatrix("model.decoder.embed_positions.weight", "dec.position_embd.weight", Extent::kContext,
             Extent::kDim),
};

constexpr auto kTensors = Join(kEnds, kHfTwoStacksLayers, kHfTwoStacksFinalNorms);

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(ReadHfDecoder(config, shape));
  KVANT_ASSIGN(shape.source, config.Count("max_source_positions", kContextMax));
  KVANT_ASSIGN(shape.bins, config.Count("num_mel_bins", kBinsMax));
  return {};
}

// The class has a setting scale_embedding and does not apply it.
Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfDecoder(config, shape, out));
  KVANT_ASSIGN(const auto activation, config.String("activation_function"));
  out.writer->AddString(out.Key("hidden_act"), activation.value_or("gelu"));
  out.writer->AddU32(out.Key("audio.mel_bins"), static_cast<uint32_t>(shape.bins));
  const int64_t frames = graph::kFramesPerPosition * shape.source;
  out.writer->AddU32(out.Key("audio.frames"), static_cast<uint32_t>(frames));
  return {};
}

constexpr std::string_view kClasses[] = {"WhisperForConditionalGeneration"};

constexpr HfFamily OfSpeech(HfFamily row) {
  row.keys.context = "max_target_positions";
  row.finish_shape = FinishShape;
  row.embedding_names = {};
  row.has_speech_tokens = true;
  return row;
}

constexpr HfFamily kHf[] = {OfSpeech(HfTwoStacksFamily(kName, kClasses, kTensors, AddParameters))};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Whisper", .read = Read, .hf = kHf};

}  // namespace kvant::arch::whisper
