// Compares interleaved rows with what ik_llama.cpp makes of equal values in a plain type, and with
// its own conversion where it has no plain type.
#include "quant/interleaved/interleaved.h"

#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "tests/quant/fixtures.h"

namespace kvant::quant {
namespace {

TEST(Interleaved, GivesTheBytesOrValuesOfIkLlama) {
  const nlohmann::json fixtures = test::ReadQuantFixture("interleaved.json");
  int compared = 0;
  for (const auto& [name, fixture] : fixtures.items()) {
    SCOPED_TRACE(name);
    const InterleavedType* type = FindInterleavedType(fixture["id"]);
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->name, name);
    ASSERT_EQ(type->rows, fixture["rows"]);
    const int64_t cols = fixture["columns"];
    const std::vector<std::byte> bytes = test::ParseBytes(fixture["bytes"]);
    ASSERT_EQ(std::ssize(bytes), type->rows * type->row_bytes(cols));
    const int64_t plain_bytes = type->format().row_bytes(cols);
    std::vector<std::byte> plain(static_cast<size_t>(type->rows * plain_bytes));
    type->unpack(bytes.data(), cols, plain.data());
    ++compared;
    if (fixture.contains("plain")) {
      EXPECT_TRUE(plain == test::ParseBytes(fixture["plain"]));
      continue;
    }
    std::vector<float> values(static_cast<size_t>(type->rows * cols));
    DecodeRows(type->format(), plain.data(), type->rows, cols, values.data());
    const std::vector<float> expected = test::ParseFloats(fixture["values"]);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i])) << i;
    }
  }
  EXPECT_EQ(compared, 29);
}

// Any bits: no undefined behaviour, and rows that kvant can read.
TEST(Interleaved, TakesAnyBytes) {
  uint32_t state = 1;
  for (uint32_t id = 200; id < 400; ++id) {
    const InterleavedType* type = FindInterleavedType(id);
    if (type == nullptr) continue;
    EXPECT_EQ(FindFormat(TensorType{id}), nullptr);
    std::vector<std::byte> bytes(static_cast<size_t>(type->rows * type->row_bytes(512)));
    for (std::byte& b : bytes)
      b = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    std::vector<std::byte> plain(static_cast<size_t>(type->rows * type->format().row_bytes(512)));
    type->unpack(bytes.data(), 512, plain.data());
    std::vector<float> values(static_cast<size_t>(type->rows) * 512);
    DecodeRows(type->format(), plain.data(), type->rows, 512, values.data());
  }
}

}  // namespace
}  // namespace kvant::quant
