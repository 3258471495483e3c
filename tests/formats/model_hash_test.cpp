// Hashes of a small file against the one-shot XXH64 over the same bytes.
#include "formats/model_hash.h"
#include "base/result.h"
#include "formats/gguf.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <vector>

#include "tests/shared_data.h"

namespace kvant::formats {
namespace {

TEST(ModelHash, TensorsAndTheirConcatenation) {
  for (const char* name : {"gqa-6q3kv-tied-f16.gguf", "mixed-quants.gguf"}) {
    const auto file = GgufFile::Open(test::SourcePath("tests/reference/random_llamas/") + name);
    ASSERT_TRUE(file.ok());
    std::vector<std::byte> all;
    size_t tensors = 0;
    const auto hash = HashModel(*file, [&](const GgufTensor& tensor, uint64_t xxh64) -> Status {
      EXPECT_EQ(xxh64, XXH64(tensor.data, tensor.size_bytes, 0)) << tensor.name;
      all.insert(all.end(), tensor.data, tensor.data + tensor.size_bytes);
      ++tensors;
      return {};
    });
    ASSERT_TRUE(hash.ok());
    EXPECT_EQ(tensors, file->tensors().size());
    EXPECT_EQ(*hash, XXH64(all.data(), all.size(), 0));
  }
}

TEST(ModelHash, StopsAtAnError) {
  const auto file =
      GgufFile::Open(test::SourcePath("tests/reference/random_llamas/gqa-6q3kv-tied-f16.gguf"));
  ASSERT_TRUE(file.ok());
  int calls = 0;
  const auto hash = HashModel(*file, [&](const GgufTensor&, uint64_t) -> Status {
    ++calls;
    return MakeError(ErrorCode::kCancelled, "stop");
  });
  EXPECT_FALSE(hash.ok());
  EXPECT_EQ(calls, 1);
}

TEST(ModelHash, HexIsSixteenDigits) {
  EXPECT_EQ(HashHex(0xabc), "0000000000000abc");
  EXPECT_EQ(HashHex(0xfedcba9876543210u), "fedcba9876543210");
}

}  // namespace
}  // namespace kvant::formats
