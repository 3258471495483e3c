// The option of a model that reads frames of sound instead of a text.
#pragma once

#include <optional>
#include <string>

#include "kvant/model.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

struct FramesOptions {
  std::optional<std::string> file;
  std::optional<FrameShape> reads;  // the frames that the model reads, if it reads frames

  void Add(OptionList& list);
};

}  // namespace kvant::tools
