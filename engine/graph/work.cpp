#include "engine/graph/work.h"

#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant::graph {

void Work::AddProducts(const formats::GgufTensor& matrix, double read, double tokens) {
  weight_bytes += static_cast<double>(matrix.size_bytes) * read;
  double& macs = matrix.format->quantized()        ? int8_macs
                 : matrix.format->block_bytes == 2 ? int16_macs
                                                   : float_macs;
  macs += static_cast<double>(matrix.n_values()) * tokens;
}

}  // namespace kvant::graph
