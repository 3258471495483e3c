// Blocks of a cache as short lists of numbers, for tests of its accounting without any kernel.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/kv/accounting/ledger.h"
#include "engine/kv/policies/policy_list.h"

namespace kvant::kv {

inline constexpr int64_t kPoison = -1;

struct GroupKind {
  std::string_view policy;
  int64_t window = 0;
};

// Blocks as lists: rows by position, or one state.
class Lists final : public BlockContents {
 public:
  void Add(int64_t blocks) {
    groups_.emplace_back(static_cast<size_t>(blocks), Block(kBlockTokens, kPoison));
  }
  int64_t& At(GroupId group, BlockId block, int64_t token) {
    return groups_[group][IndexOf(block)][static_cast<size_t>(token)];
  }

  void Copy(const BlockCopy& copy) override {
    Whole(copy.group, copy.to) = Whole(copy.group, copy.from);
  }
  void Clear(GroupId group, BlockId block) override { std::ranges::fill(Whole(group, block), 0); }
  void Discard(GroupId group, BlockId block) override {
    std::ranges::fill(Whole(group, block), kPoison);
  }

 private:
  using Block = std::vector<int64_t>;
  Block& Whole(GroupId group, BlockId block) { return groups_[group][IndexOf(block)]; }
  IdVector<GroupId, std::vector<Block>> groups_;
};

}  // namespace kvant::kv
