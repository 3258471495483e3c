// The reference scores of an indexer; semantics in cpu/kernels/index_scores.h.
#pragma once

#include "cpu/kernels/index_scores.h"

namespace kvant::cpu::scalar {

void IndexScores(const IndexTask& task);

}  // namespace kvant::cpu::scalar
