// Marian (arXiv 1804.00344): layer norms of the sums, sines and cosines as positions, which the
// file holds.
#include <array>
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

// The embedding of models that have two is the decoder's.
template <size_t kSize>
constexpr std::array<HfTensor, kSize> WithDecoderEmbedding(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) {
    if (tensor.gguf_name == kEmbeddingName) tensor.hf_name = "model.decoder.embed_tokens.weight";
  }
  return tensors;
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  AddHfPositions(shape, Position, out);
  return AddHfTwoStacks(config, shape, out);
}

constexpr std::string_view kClasses[] = {"MarianMTModel"};

constexpr auto kTensors = Join(kHfTwoStacks);

// Models whose encoder has a vocabulary and an embedding of its own.
constexpr auto kTensorsOfTwo =
    Join(std::array{HfMatrix("model.encoder.embed_tokens.weight", "enc.token_embd.weight",
                             Extent::kSourceVocab, Extent::kDim)},
         WithDecoderEmbedding(kHfTwoStacks));

bool HasOneEmbedding(const JsonObject& config) {
  const auto shared = config.Bool("share_encoder_decoder_embeddings");
  return !shared.ok() || shared->value_or(true);
}

Status ReadTwoVocabularies(const JsonObject& config, HfShape& shape) {
  shape.source_vocab = shape.vocab;
  constexpr const char* kKey = "decoder_vocab_size";
  if (config.Find(kKey) != nullptr) {
    KVANT_ASSIGN(shape.vocab, config.Count(kKey, kHfVocabMax));
  }
  return ReadHfDecoder(config, shape);
}

constexpr HfFamily WithVocabularies(HfFamily row) {
  row.translator.files = TranslatorFiles::kSourceAndTarget;
  return row;
}

constexpr HfFamily WithOneEmbedding(HfFamily row) {
  row.is_of = HasOneEmbedding;
  return row;
}

constexpr HfFamily WithTwoEmbeddings(HfFamily row) {
  row.finish_shape = ReadTwoVocabularies;
  row.embedding_names = {};
  return row;
}

constexpr HfFamily kHf[] = {
    WithOneEmbedding(WithVocabularies(HfTwoStacksFamily(kName, kClasses, kTensors, AddParameters))),
    WithTwoEmbeddings(
        WithVocabularies(HfTwoStacksFamily(kName, kClasses, kTensorsOfTwo, AddParameters)))};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Marian (opus-mt)", .read = Read, .hf = kHf};

}  // namespace kvant::arch::marian
