// Transcriber: a decoder that runs a model, and the loop over windows.
#include <utility>

#include "base/result.h"
#include "engine/speech/transcribe_sound.h"
#include "kvant/speech.h"

namespace kvant {
namespace {

class ModelTranscriber final : public Transcriber {
 public:
  ModelTranscriber(std::unique_ptr<speech::WindowDecoder> decoder, const TranscribeOptions& options)
      : decoder_(std::move(decoder)), options_(options) {}

  Result<Transcript> Transcribe(SoundSource& sound, const TranscribeEvents& events) override {
    return speech::TranscribeSound(*decoder_, sound, options_, events);
  }

 private:
  std::unique_ptr<speech::WindowDecoder> decoder_;
  TranscribeOptions options_;
};

}  // namespace

Result<std::unique_ptr<Transcriber>> Transcriber::Create(std::shared_ptr<const Model> model,
                                                         const TranscribeOptions& options,
                                                         const SessionOptions& session) {
  KVANT_ASSIGN(auto decoder, speech::MakeModelDecoder(std::move(model), options, session));
  return std::unique_ptr<Transcriber>(
      std::make_unique<ModelTranscriber>(std::move(decoder), options));
}

}  // namespace kvant
