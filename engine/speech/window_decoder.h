// The text of one window of sound. The interface hides the model from the loop over windows
// (transcribe_sound.h), so that tests can put scripted texts in its place.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/speech/speech_tokens.h"
#include "kvant/model.h"
#include "kvant/runner.h"
#include "kvant/speech.h"

namespace kvant::speech {

struct WindowText {
  std::vector<TokenId> tokens;  // without the end
  float temperature = 0;
  double avg_log_prob = 0;  // sum over tokens and end, over tokens + 1
  double compression_ratio = 0;
  double no_speech_prob = std::numeric_limits<double>::quiet_NaN();
};

class WindowDecoder {
 public:
  virtual ~WindowDecoder() = default;

  virtual const SpeechTokens& tokens() const = 0;
  virtual FrameShape shape() const = 0;
  // Tokens of context that a prompt has room for.
  virtual size_t context_max() const = 0;
  virtual Result<std::vector<TokenId>> Encode(std::string_view text) const = 0;
  virtual std::string Decode(const std::vector<TokenId>& tokens) const = 0;

  // The code of the likeliest language of a window, for a model that knows several.
  virtual Result<std::string> DetectLanguage(std::span<const float> frames) = 0;
  // The language of the windows from here on, by code or name; kInvalid for one that the model does
  // not know, with those that it knows. A decoder begins with that of the options, if they name
  // one.
  virtual Status SetLanguage(std::string_view language) = 0;
  // Its code.
  virtual std::string language() const = 0;

  // A new window, [bins][frames], after the text of `context`, the newest tokens last.
  virtual Status Begin(std::span<const float> frames, std::span<const TokenId> context) = 0;
  // The text of the window at this temperature. May be called several times.
  virtual Result<WindowText> Try(float temperature) = 0;
  // Forgets all that the windows have left behind.
  virtual Status Reset() = 0;
};

// A decoder that runs the model. kInvalid for options that make no sense.
Result<std::unique_ptr<WindowDecoder>> MakeModelDecoder(std::shared_ptr<const Model> model,
                                                        const TranscribeOptions& options,
                                                        SessionOptions session);

}  // namespace kvant::speech
