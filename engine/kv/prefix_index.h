// Finds full blocks by their tokens and all tokens before them, so that a prompt that begins like
// an earlier one takes the earlier one's blocks instead of computing them.
//
// A tree: a node is one block of tokens after its parent's, found by a hash chain
//   hash(node) = XXH64(tokens of the block, seed hash(parent)),
// and the tokens themselves are compared, so that a collision can do no harm. A node holds a
// reference to its block in every group, unless a window group had dropped that block. When the
// cache needs memory, leaves are given up, the least recently used one first.
// Thread-safety: none; it belongs to the thread that runs the passes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "kvant/token_id.h"

namespace kvant::kv {

class PrefixIndex {
 public:
  // The cache must outlive the index and asks it for blocks when it has none.
  explicit PrefixIndex(Cache& cache);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Gives `sequence`, which is empty, the blocks of the longest known beginning of `tokens` after
  // which its window groups still hold what the next token sees.
  void Find(std::span<const TokenId> tokens, Sequence& sequence);

  // Adds the full blocks of a sequence that has processed just these tokens.
  void Add(std::span<const TokenId> tokens, const Sequence& sequence);

  // How many references to the block the index holds.
  int references(int group, BlockId block) const;

  int64_t blocks() const { return static_cast<int64_t>(by_hash_.size()); }

 private:
  using Node = int;
  static constexpr Node kRoot = -1;  // no block yet

  struct Entry {
    Node parent = kRoot;
    uint64_t hash = 0;
    std::array<TokenId, kBlockTokens> tokens{};
    std::vector<BlockId> ids;  // by group; kNoBlock where it had been dropped; empty: unused entry
    int children = 0;
    uint64_t used = 0;  // tick of the last use
  };

  uint64_t HashOf(Node parent, std::span<const TokenId> block) const;
  Node Child(Node parent, std::span<const TokenId> block) const;
  Node NewChild(Node parent, std::span<const TokenId> block, const Sequence& sequence,
                int64_t number);
  void Touch(std::span<const Node> chain);
  int64_t UsableDepth(std::span<const Node> chain) const;
  bool IsUsable(std::span<const Node> chain) const;
  bool Reclaim();

  Cache& cache_;
  std::vector<Entry> entries_;
  std::vector<Node> unused_;
  std::unordered_multimap<uint64_t, Node> by_hash_;
  std::map<uint64_t, Node> leaves_;  // by tick of last use
  std::vector<Node> chain_;          // of the call under way
  uint64_t tick_ = 0;
};

}  // namespace kvant::kv
