#include "tools/options/groups/offload_group.h"

#include <string>
#include <utility>

#include "base/result.h"
#include "engine/limits.h"
#include "tools/options/number_list.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

void OffloadGroup::Add(OptionList& list) {
  const auto take_what = [this](const std::string& text) -> Status {
    if (text != "none" && text != "attention") {
      return MakeError(ErrorCode::kInvalid, "expected none or attention, found '{}'",
                       Visible(text));
    }
    what = text == "none" ? Offload::kNone : Offload::kAttention;
    return {};
  };
  list.Checked("--offload", take_what, "WHAT",
               "attention: a CUDA device keeps keys and values and computes attention, the CPU "
               "does the rest; none: the CPU does everything",
               "none");
  const auto take_device = [this](const std::string& text) -> Status {
    for (const auto& [name, device] :
         {std::pair("cpu", KvDevice::kCpu), std::pair("cuda", KvDevice::kCuda),
          std::pair("auto", KvDevice::kAuto)}) {
      if (text != name) continue;
      kv_device = device;
      return {};
    }
    return MakeError(ErrorCode::kInvalid, "expected cpu, cuda or auto, found '{}'", Visible(text));
  };
  list.Checked("--kv-device", take_device, "DEVICE",
               "Memory for keys and values of offloaded layers. cuda: the device's; auto: the "
               "device's, where layers that do not fit stay with the CPU; cpu: the host's, which "
               "the device reads over the bus",
               "auto");
  list.Texts("--offload-layers", &layers, "LIST",
             "Offload only these attention layers, by number from 0: 0-15, or 0,4,8-11");
}

Status OffloadGroup::Set(SessionOptions* options) const {
  options->offload = what.value_or(options->offload);
  options->kv_device = kv_device.value_or(options->kv_device);
  if (options->offload == Offload::kNone) {
    for (const auto& [given, name] : {std::pair(kv_device.has_value(), "--kv-device"),
                                      std::pair(!layers.empty(), "--offload-layers")}) {
      if (!given) continue;
      return MakeError(ErrorCode::kInvalid, "{}: expected --offload attention with it", name);
    }
  }
  if (layers.empty()) return {};
  KVANT_ASSIGN(const auto numbers, ParseNumbers("--offload-layers", layers, {0, kLayersMax}));
  options->offload_layers.assign(numbers.begin(), numbers.end());
  return {};
}

}  // namespace kvant::tools
