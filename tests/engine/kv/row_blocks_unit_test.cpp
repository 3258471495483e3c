// The numbers of row blocks, without a model: which ids they get, and when they go.
#include <gtest/gtest.h>

#include "engine/kv/row_blocks.h"

namespace kvant::kv {
namespace {

TEST(RowBlocks, IdsAreNeverGivenToAnotherContent) {
  RowBlocks blocks(100, 2);
  EXPECT_EQ(*blocks.Add(std::vector<float>{1, 2, 3, 4}), 100);
  EXPECT_EQ(*blocks.Add(std::vector<float>{1, 2}), 102);
  EXPECT_EQ(*blocks.Add(std::vector<float>{1, 2, 3, 4}), 100);
  EXPECT_EQ(*blocks.Add(std::vector<float>{0, 1}), 103);
  EXPECT_EQ(*blocks.Add(std::vector<float>{-0.0f, 1}), 104);  // other bits
  EXPECT_EQ(blocks.count(), 4);
  ASSERT_TRUE(blocks.Free(102).ok());
  EXPECT_EQ(blocks.Find(102), nullptr);
  EXPECT_EQ(*blocks.Add(std::vector<float>{1, 2}), 105);
  EXPECT_EQ(blocks.Find(101)[1], 4);
  EXPECT_EQ(blocks.BlockOf(101).first, 100);
  EXPECT_EQ(blocks.BlockOf(101).rows.size(), 4u);
  for (const TokenId id : {-1, 0, 99, 106}) EXPECT_EQ(blocks.Find(id), nullptr);
}

TEST(RowBlocks, EndWithTheLastId) {
  RowBlocks blocks(100, 1, 103);
  EXPECT_EQ(*blocks.Add(std::vector<float>{1, 2}), 100);
  const auto refused = blocks.Add(std::vector<float>{3, 4});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().message, "rows: no ids are left for 2 rows: there is room for 1");
  EXPECT_EQ(*blocks.Add(std::vector<float>{3}), 102);
  EXPECT_FALSE(blocks.Add(std::vector<float>{4}).ok());
  EXPECT_EQ(*blocks.Add(std::vector<float>{3}), 102);
}

// Each of several kinds of holders keeps a block.
TEST(RowBlocks, GoWithTheirLastHolder) {
  RowBlocks blocks(10, 1);
  ASSERT_EQ(*blocks.Add(std::vector<float>{1, 2, 3}), 10);
  ASSERT_EQ(*blocks.Add(std::vector<float>{4}), 13);
  const std::vector<TokenId> tokens = {5, 12, 13, 11, 11, 9};
  const std::vector<TokenId> few = {11, 0};
  blocks.AddReferences(tokens);
  blocks.AddReferences(few);
  const std::span<const TokenId> both[] = {tokens, few};
  EXPECT_TRUE(blocks.Check(both).ok());
  EXPECT_FALSE(blocks.Check({both, 1}).ok());
  ASSERT_TRUE(blocks.Free(10).ok());
  EXPECT_FALSE(blocks.Free(10).ok());
  ASSERT_TRUE(blocks.Free(13).ok());
  blocks.Hold(few);
  blocks.Release(tokens);
  EXPECT_EQ(blocks.Find(13), nullptr);
  blocks.Release(few);
  EXPECT_NE(blocks.Find(10), nullptr);
  EXPECT_TRUE(blocks.Check({}).ok());
  EXPECT_FALSE(blocks.Check({both, 1}).ok());
  blocks.LetGo(few);
  EXPECT_TRUE(blocks.empty());
}

}  // namespace
}  // namespace kvant::kv
