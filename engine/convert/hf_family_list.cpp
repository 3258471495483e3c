// The list of convertible families: one line each.
#include <array>

#include "engine/convert/hf_family.h"

namespace kvant::convert {

#define KVANT_HF_FAMILIES(row) row(kHfLlama) row(kHfPhi3) row(kHfGemma3)

#define KVANT_DECLARE(family) extern const HfFamily family;
KVANT_HF_FAMILIES(KVANT_DECLARE)
#undef KVANT_DECLARE

std::span<const HfFamily* const> AllHfFamilies() {
#define KVANT_ADDRESS(family) &family,
  static const std::array families = {KVANT_HF_FAMILIES(KVANT_ADDRESS)};
#undef KVANT_ADDRESS
  return families;
}

}  // namespace kvant::convert
