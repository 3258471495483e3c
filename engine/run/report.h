// The log of the KV cache, in the line forms that Runner::SetKvLog documents.
#pragma once

#include <span>

#include "engine/run/sequences.h"

namespace kvant::run {

// Logs, after a step, what each layer holds: a line for each length among the step's sequences.
void LogUpdate(const Core& core, const Sequences& sequences, std::span<const StepInput> inputs);

}  // namespace kvant::run
