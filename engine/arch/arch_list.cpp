// The list of model families: one line each.
#include <array>

#include "engine/arch/arch_spec.h"

namespace kvant::arch {

#define KVANT_FAMILIES(row) row(kLlamaFamily) row(kPhi3Family) row(kGemma3Family)

#define KVANT_DECLARE(family) extern const ArchFamily family;
KVANT_FAMILIES(KVANT_DECLARE)
#undef KVANT_DECLARE

std::span<const ArchFamily* const> AllFamilies() {
#define KVANT_ADDRESS(family) &family,
  static const std::array families = {KVANT_FAMILIES(KVANT_ADDRESS)};
#undef KVANT_ADDRESS
  return families;
}

}  // namespace kvant::arch
