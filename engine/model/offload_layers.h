// The layers that a device can compute, by the options alone.
#pragma once

#include <vector>

#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/session_options.h"

namespace kvant {

// Sets the offload of sessions whose options name none, where they can offload: nothing, unless a
// program asks for it before it opens a session. So the tests of the CPU's cache run with a
// device's, too.
void SetDefaultOffload(Offload offload);
// The options with this default.
SessionOptions WithDefaultOffload(const Model& model, SessionOptions options);

// Checks the options of an offload, which are resolved otherwise. kInvalid, kNotSupported.
Status CheckOffload(const Model& model, const SessionOptions& options);

// The cache ids of the layers that the options name and that a device can compute: attentions over
// a sequence's own tokens, with heads of a multiple of 8 dimensions up to 256, or latents of up to
// 512. Ascending; empty without an offload.
std::vector<int> OffloadableLayers(const Model& model, const SessionOptions& options);

}  // namespace kvant
