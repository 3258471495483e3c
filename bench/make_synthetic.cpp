// make_synthetic SHAPE TYPE OUT.gguf: writes a random Llama of a named shape, for example "1b Q4_0
// /tmp/1b.gguf".
#include <cstdio>
#include <string>

#include "base/thread_pool.h"
#include "tools/bench/synthetic_model.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(
        stderr,
        "usage: make_synthetic SHAPE TYPE OUT.gguf    (for example: 1b Q4_0 1b-q4_0.gguf)\n");
    return 2;
  }
  const auto model = kvant::tools::ParseSynthetic(std::string(argv[1]) + ":" + argv[2]);
  if (!model.ok()) {
    std::fprintf(stderr, "make_synthetic: %s\n", model.error().message.c_str());
    return 2;
  }
  const kvant::Status status =
      kvant::tools::WriteSynthetic(*model, argv[3], kvant::DefaultThreadCount());
  if (!status.ok()) {
    std::fprintf(stderr, "make_synthetic: %s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}
