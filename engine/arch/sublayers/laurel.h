// A learned residual of low rank, beside the attention of a layer with several streams:
//   stream = (stream + n + laurel_post_norm(laurel_r . (laurel_l . n))) / sqrt(2)
// where n is the norm of the first of the streams, which the attention has read, too.
//
// Tensors: laurel_l, [rank rows], and laurel_r.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/norm.h"

namespace kvant::arch {

class SublayerBuilder;

struct Laurel {
  int64_t rank = 0;
  Norm before;  // of the first stream
  Norm after;   // of the products

  Status AddNodes(SublayerBuilder& builder) const;
};

}  // namespace kvant::arch
