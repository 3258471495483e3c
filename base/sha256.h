// SHA-256 (FIPS 180-4): a digest that tells nothing of what it was made from, for keys of clients
// and for files that another program names by it.
//
// Thread-safety: pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvant {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::string_view bytes);

}  // namespace kvant
