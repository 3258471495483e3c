#include "tools/run/options/frames_options.h"

namespace kvant::tools {

void FramesOptions::Add(OptionList& list) {
  list.Text(
      "--frames", &file, "FILE.npy",
      "For models that read sound, such as Whisper: the features, float32, float16 or float64 "
      "[values of a frame, frames]; silence follows fewer frames");
}

}  // namespace kvant::tools
