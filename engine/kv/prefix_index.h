// Finds full blocks by their tokens and all tokens before them, so that a prompt that begins like
// an earlier one takes the earlier one's blocks instead of computing them.
//
// A tree: a node is one block of tokens after its parent's, found by a hash chain
//   hash(node) = XXH64(tokens of the block, seed hash(parent)),
// and the tokens themselves are compared, so that a collision can do no harm. The first block of a
// sequence with a source has the source's number for the hash of its parent, which is compared,
// too: rows behind another source are other rows. A node holds a reference to its block in every
// group, unless a window group had dropped that block. Groups of states have the state after the
// node's block, but few nodes have one: the states of the index are limited in number, and a prefix
// ends where there is one. When the cache needs memory, and before the index would refer to more
// bytes than it may, leaves are given up, the least recently used one first. Thread-safety: none;
// it belongs to the thread that runs the passes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/kv/row_blocks.h"
#include "kvant/token_id.h"

namespace kvant::kv {

// Whether the present state of a sequence is added with its blocks.
enum class States : uint8_t { kLeftOut, kAdded };

class PrefixIndex {
 public:
  // The cache and the rows must outlive the index. Whoever has both lets the cache ask the index
  // for blocks. Nodes hold the rows among their tokens: an image that comes again gets the same ids
  // and is found. `rows` may be null, where there are none. The index refers to at most `bytes_max`
  // bytes of blocks and states.
  explicit PrefixIndex(Cache& cache, RowBlocks* rows = nullptr, uint64_t bytes_max = UINT64_MAX);
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Gives `sequence`, which is empty, the blocks of the longest known beginning of `tokens` after
  // which its window groups still hold what the next token sees, and its state groups the state.
  // `source`: the number of what it reads, and 0 for sequences that read nothing.
  void Find(std::span<const TokenId> tokens, Sequence& sequence, uint64_t source = 0);

  // Adds the full blocks of a sequence that has processed exactly `tokens`, from the first one on,
  // as far as there is room for them.
  void Add(std::span<const TokenId> tokens, const Sequence& sequence,
           States states = States::kAdded, uint64_t source = 0);

  // Gives up the least recently used leaf, or the state of the node that was used least recently
  // among nodes with a state. False if there is none.
  bool GiveUpLeaf();
  bool GiveUpState();

  // How many references to the block the index holds.
  int references(GroupId group, BlockId block) const;

  // Adds the tokens of every node to `lists`; they are valid until the index changes.
  void ListTokens(std::vector<std::span<const TokenId>>& lists) const;

  // Bytes of the blocks and states that the index refers to.
  uint64_t bytes() const { return bytes_; }

  int64_t blocks() const { return static_cast<int64_t>(by_hash_.size()); }

 private:
  using Node = int;
  static constexpr Node kRoot = -1;  // no block yet

  struct Entry {
    Node parent = kRoot;
    uint64_t source = 0;
    uint64_t hash = 0;
    std::array<TokenId, kBlockTokens> tokens{};
    IdVector<GroupId, BlockId> ids;  // kNoBlock where it had been dropped; empty: unused entry
    int children = 0;
    uint64_t used = 0;  // tick of the last use
    bool has_states = false;
  };

  // The place of a block: the block before it, and its sequence's source.
  struct Place {
    Node parent = kRoot;
    uint64_t source = 0;
  };
  uint64_t HashOf(Place place, std::span<const TokenId> block) const;
  Node Child(Place place, std::span<const TokenId> block) const;
  Node NewChild(Place place, std::span<const TokenId> block, const Sequence& sequence,
                int64_t number);
  uint64_t BytesOf(const Sequence& sequence, int64_t number) const;
  bool MakeRoom(uint64_t bytes, Node kept);
  void Touch(std::span<const Node> chain);
  int64_t UsableDepth(std::span<const Node> chain) const;
  bool IsUsable(std::span<const Node> chain) const;
  void AddStates(Node node, const Sequence& sequence, int64_t length);
  void DropStates(Entry& entry);

  Cache& cache_;
  RowBlocks* rows_;
  std::vector<Entry> entries_;
  std::vector<Node> unused_;
  std::unordered_multimap<uint64_t, Node> by_hash_;
  std::map<uint64_t, Node> leaves_;  // by tick of last use
  std::vector<Node> chain_;          // of the call under way
  uint64_t tick_ = 0;
  uint64_t bytes_ = 0;
  uint64_t bytes_max_;
  int64_t states_ = 0;      // nodes with states
  int64_t states_max_ = 0;  // how many there may be
};

}  // namespace kvant::kv
