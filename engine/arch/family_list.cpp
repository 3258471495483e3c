// AllFamilies: the list as an array.
#include <array>

#include "engine/arch/family.h"

namespace kvant::arch {

std::span<const Family* const> AllFamilies() {
#define KVANT_FAMILY(name) &name::kFamily,
  static constexpr std::array families = {
#include "engine/arch/family_list.inl"
  };
#undef KVANT_FAMILY
  return families;
}

}  // namespace kvant::arch
