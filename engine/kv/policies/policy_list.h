// The policies of this build: one line to include one, one entry in the list. Nothing else names
// them all.
#pragma once

#include <memory>
#include <string_view>

#include "engine/kv/accounting/policy.h"
#include "engine/kv/policies/encoder.h"
#include "engine/kv/policies/fixed.h"
#include "engine/kv/policies/full.h"
#include "engine/kv/policies/sections.h"
#include "engine/kv/policies/state.h"
#include "engine/kv/policies/window.h"

namespace kvant::kv {

template <class... Policies>
struct PolicyTypes {};

using PolicyList = PolicyTypes<Full, Window, Sections, Fixed, Encoder, State>;

// The policy of this name, or null where there is none. An empty name stands for "full" where
// `window` is 0, and for "window" otherwise. For "state" the number is that of checkpoints, for
// "fixed" and "encoder" that of the longest source's positions.
std::unique_ptr<const Policy> MakePolicy(std::string_view name, int64_t window);

}  // namespace kvant::kv
