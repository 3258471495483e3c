// The mixers that families with gated delta nets share: delta nets, and in every few layers an
// attention whose result has gates.
#pragma once

#include <vector>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

// The mixer of each layer of a stack, with the ropes of the attentions.
Result<std::vector<Block>> ReadDeltaMixers(const Metadata& metadata, const Stack& stack,
                                           ValueHeads order, std::vector<RopeSpec>& ropes);

}  // namespace kvant::arch
