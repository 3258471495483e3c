#include "tools/inspect/inspect_devices.h"

#include <fmt/format.h>

#include "cuda/driver.h"
#include "tools/options/model_facts.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

Json DevicesJson() {
  const auto driver = cuda::Driver::Open();
  if (!driver.ok()) return {{"devices", Json::array()}, {"reason", driver.error().message}};
  const auto found = driver->Devices();
  if (!found.ok()) return {{"devices", Json::array()}, {"reason", found.error().message}};
  Json devices = Json::array();
  for (const cuda::DeviceFacts& facts : *found) {
    devices.push_back({{"name", facts.name},
                       {"capability", fmt::format("{}.{}", facts.major, facts.minor)},
                       {"multiprocessors", facts.multiprocessors},
                       {"memory_bytes", facts.memory_bytes}});
  }
  const int version = driver->version();
  return {{"driver", fmt::format("{}.{}", version / 1000, version % 1000 / 10)},
          {"devices", std::move(devices)}};
}

std::string DevicesText(const Json& devices) {
  if (devices.contains("reason")) {
    return fmt::format("CUDA devices     none: {}\n",
                       Visible(devices["reason"].get<std::string>()));
  }
  std::string out = fmt::format("CUDA devices     {}, driver for CUDA {}\n",
                                devices["devices"].size(), devices["driver"].get<std::string>());
  int number = 0;
  for (const Json& device : devices["devices"]) {
    out += fmt::format(
        "  {:<15}{}, compute capability {}, {} multiprocessors, {}\n", number++,
        Visible(device["name"].get<std::string>()), device["capability"].get<std::string>(),
        device["multiprocessors"].get<int>(), SizeText(device["memory_bytes"].get<uint64_t>()));
  }
  return out;
}

}  // namespace kvant::tools
