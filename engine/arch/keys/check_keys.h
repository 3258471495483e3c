// The rule that a key which changes what a model computes is never ignored: a key under the
// architecture's name, or the tokenizer's, that nobody read has a row that says why it has no
// effect, or the file is refused, or a warning names it.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

// Checks the keys of a file after its family has read them. `ignored` are names, with or without
// the architecture, that are left out knowingly. kNotSupported, with all keys to ignore, for those
// whose effect is not computed; kInvalid for an ignored key that the family reads. One warning
// names all keys that nobody knows.
Status CheckUnreadKeys(const Metadata& metadata, const ModelSpec& spec,
                       std::span<const std::string> ignored);

}  // namespace kvant::arch
