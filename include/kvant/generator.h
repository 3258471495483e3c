// A single text: prefill a prompt, then sample, show and append tokens until something ends it. It
// is a batch of one (text_request.h, run/scheduler.h).
//
// Thread-safety: one thread at a time per sequence and sampler.
#pragma once

#include <cstdint>
#include <span>

#include "kvant/result.h"
#include "kvant/session.h"
#include "kvant/text_request.h"

namespace kvant {

// Appends `prompt` to the sequence and generates. kInvalid for an empty prompt, kContextFull if it
// does not fit, kNotSupported for shift_keep where recurrent layers let no context move on; then
// the sequence is unchanged.
Result<Generation> Generate(Session& session, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text);
// Generates on a sequence of a runner, or of whatever takes its place, as on a session.
Result<Generation> Generate(SequenceHost& host, SequenceId sequence, const Tokenizer& tokenizer,
                            Sampler& sampler, std::span<const TokenId> prompt,
                            const GenerateOptions& options, const TextFunction& on_text);

}  // namespace kvant
