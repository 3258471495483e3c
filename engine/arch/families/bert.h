// The name of the family bert, which the classes of engine/arch/hf/hf_bert.h become.
#pragma once

#include <string_view>

namespace kvant::arch {

inline constexpr std::string_view kBertName = "bert";

}  // namespace kvant::arch
