// SHA-256 against the vectors of NIST (FIPS 180-4 examples, SHA256ShortMsg) and of other lengths
// around the end of a block, which Python's hashlib gave.
#include "base/sha256.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace kvant::test {
namespace {

std::string Hex(const Sha256Digest& digest) {
  std::string out;
  for (const uint8_t byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(Hex(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hex(Sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, LengthsAroundTheEndOfABlock) {
  const std::pair<size_t, const char*> cases[] = {
      {55, "94abcc11f65698688ffc2858efb9b3d55f20c579abaad82735ae6817887595f4"},
      {56, "493a700b8fd71c2a186c018e1d3a9b1bebbcec358a13daa67e76a788fddc2e07"},
      {63, "d4bacb34b88e17aabe42b5e49c36ab951d4fe19a13c11410eebbc73265e4edfe"},
      {64, "2519b49bcf69feac270ac3c8631539e8caed4c7e6a62c6cc5511228a61780745"},
      {65, "f39cdc2584758c99cf81c1f41d2572f54e17066afffc9d187aeafe5f7cbe2122"},
      {119, "4faa65f0aeec8078317ebc05630903148e3a809f66bb1b68ce6f50139f0dc051"},
      {120, "64fa0bb88d882a997cac9b2506f0ed5a5003259d2b316815aaff3f1d026c7390"},
      {128, "69cd344d20fee04179a672ea3b2929da884e03975100369c926dedc642b5a364"},
  };
  for (const auto& [size, digest] : cases) {
    EXPECT_EQ(Hex(Sha256(std::string(size, 'k'))), digest) << size;
  }
}

}  // namespace
}  // namespace kvant::test
