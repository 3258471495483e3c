// make_synthetic SHAPE TYPE OUT.gguf: writes a random Llama of a named shape, for example "1b Q4_0
// /tmp/1b.gguf".
#include <cstdio>

#include "bench/synthetic.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(
        stderr,
        "usage: make_synthetic SHAPE TYPE OUT.gguf    (for example: 1b Q4_0 1b-q4_0.gguf)\n");
    return 2;
  }
  const auto shape = kvant::bench::FindShape(argv[1]);
  if (!shape.ok()) {
    std::fprintf(stderr, "make_synthetic: %s\n", shape.error().message.c_str());
    return 2;
  }
  const kvant::quant::FormatTraits* format = kvant::quant::FindFormat(std::string_view(argv[2]));
  if (format == nullptr) {
    std::fprintf(stderr, "make_synthetic: unknown type \"%s\"\n", argv[2]);
    return 2;
  }
  const kvant::Status status = kvant::bench::WriteSynthetic(*shape, *format, argv[3]);
  if (!status.ok()) {
    std::fprintf(stderr, "make_synthetic: %s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}
