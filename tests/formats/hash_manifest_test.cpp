// Manifests of hashes: llama-gguf-hash's lines, and what a comparison finds.
#include "formats/hash_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvant::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kManifest =
    "# a comment\n"
    "xxh64     0123456789abcdef  some dir/model.gguf:token_embd.weight\n"
    "sha1      59f79ecefd8125a996fdf419239051a7e99e5f20  some dir/model.gguf:token_embd.weight\n"
    "xxh64     fedcba9876543210  some dir/model.gguf:output.weight\r\n"
    "\n"
    "xxh64     00000000000000ff  some dir/model.gguf\n";

TEST(HashManifest, ReadsXxh64LinesAlone) {
  const auto manifest = ParseHashManifest(kManifest, "m");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_EQ(manifest->tensors.size(), 2u);
  EXPECT_EQ(manifest->tensors.at("token_embd.weight"), 0x0123456789abcdefu);
  EXPECT_EQ(manifest->tensors.at("output.weight"), 0xfedcba9876543210u);
  EXPECT_EQ(manifest->model, 0xffu);
}

TEST(HashManifest, ReadsWhatItWrites) {
  const std::string text = HashManifestLine(7, "a b.gguf:x") + HashManifestLine(8, "a b.gguf");
  EXPECT_EQ(text, "xxh64     0000000000000007  a b.gguf:x\nxxh64     0000000000000008  a b.gguf\n");
  const auto manifest = ParseHashManifest(text, "m");
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(manifest->tensors.at("x"), 7u);
  EXPECT_EQ(manifest->model, 8u);
}

TEST(HashManifest, BadLinesAreNamed) {
  for (const char* line : {"xxh64 123 m.gguf:a", "xxh64 0123456789abcdeg m.gguf:a", "xxh64",
                           "xxh64 0123456789abcdef", "xxh64 0123456789abcdef0 m.gguf"}) {
    const auto manifest = ParseHashManifest(std::string("\n") + line + "\n", "m.txt");
    ASSERT_FALSE(manifest.ok()) << line;
    EXPECT_THAT(manifest.error().message, HasSubstr("m.txt:2: ")) << line;
  }
  EXPECT_FALSE(ParseHashManifest("", "m").ok());
  EXPECT_FALSE(ParseHashManifest("sha1 00 m.gguf:a\n", "m").ok());
  const auto twice = ParseHashManifest(
      "xxh64 0000000000000001 m:a\nxxh64 0000000000000001 m:a\nxxh64 0000000000000002 m:a\n", "m");
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().message, HasSubstr("m:3: tensor \"a\""));
}

TEST(HashManifest, ComparisonNamesEveryKindOfDifference) {
  HashManifest manifest;
  manifest.tensors = {{"a", 1}, {"b", 2}, {"c", 3}};
  manifest.model = 9;
  EXPECT_TRUE(CompareHashes(manifest, {{"a", 1}, {"b", 2}, {"c", 3}}, 9).same());
  const HashComparison found = CompareHashes(manifest, {{"a", 1}, {"b", 5}, {"d", 4}}, 8);
  EXPECT_FALSE(found.same());
  EXPECT_THAT(found.differing, ElementsAre("b"));
  EXPECT_THAT(found.missing, ElementsAre("c"));
  EXPECT_THAT(found.added, ElementsAre("d"));
  EXPECT_TRUE(found.model_differs);
  HashManifest whole;  // without tensors
  whole.model = 9;
  EXPECT_TRUE(CompareHashes(whole, {{"a", 1}}, 9).same());
  EXPECT_FALSE(CompareHashes(whole, {{"a", 1}}, 8).same());
}

}  // namespace
}  // namespace kvant::formats
