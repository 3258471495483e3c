// The log of the KV cache, with the two line forms that other engines' users know.
#pragma once

#include <span>

#include "engine/run/sequences.h"

namespace kvant::run {

// After a step: what each layer holds, one batch for each length among its sequences.
void LogUpdate(const Core& core, const Sequences& sequences, std::span<const StepInput> inputs);

}  // namespace kvant::run
