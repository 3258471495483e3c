// The tree of known blocks, and the order in which they are given up.
#include "engine/kv/prefix_index.h"

#include <algorithm>

#include <xxhash.h>

#include "base/check.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/policies/state.h"

namespace kvant::kv {
namespace {

std::span<const TokenId> BlockOf(std::span<const TokenId> tokens, int64_t number) {
  return tokens.subspan(static_cast<size_t>(number * kBlockTokens),
                        static_cast<size_t>(kBlockTokens));
}

}  // namespace

PrefixIndex::PrefixIndex(Cache& cache, RowBlocks* rows, uint64_t bytes_max)
    : cache_(cache), rows_(rows), bytes_max_(bytes_max) {
  for (const GroupId group : cache_.group_ids()) {
    states_max_ = std::max(states_max_, cache_.shape(group).checkpoints * cache_.sequences());
  }
}

uint64_t PrefixIndex::HashOf(Place place, std::span<const TokenId> block) const {
  const bool first = place.parent == kRoot;
  const uint64_t seed = first ? place.source : entries_[static_cast<size_t>(place.parent)].hash;
  return XXH64(block.data(), block.size_bytes(), seed);
}

PrefixIndex::Node PrefixIndex::Child(Place place, std::span<const TokenId> block) const {
  const auto [begin, end] = by_hash_.equal_range(HashOf(place, block));
  for (auto it = begin; it != end; ++it) {
    const Entry& entry = entries_[static_cast<size_t>(it->second)];
    const bool same_place = entry.parent == place.parent && entry.source == place.source;
    if (same_place && std::equal(block.begin(), block.end(), entry.tokens.begin())) {
      return it->second;
    }
  }
  return kRoot;
}

// Marks the nodes of a chain as used now, a parent after its children, so that it outlives them.
void PrefixIndex::Touch(std::span<const Node> chain) {
  for (size_t i = chain.size(); i-- > 0;) {
    Entry& entry = entries_[static_cast<size_t>(chain[i])];
    const bool is_leaf = leaves_.erase(entry.used) > 0;
    entry.used = ++tick_;
    if (is_leaf) leaves_.emplace(entry.used, chain[i]);
  }
}

// The most blocks of a chain after which every group still has what the next token sees.
int64_t PrefixIndex::UsableDepth(std::span<const Node> chain) const {
  int64_t depth = static_cast<int64_t>(chain.size());
  while (depth > 0 && !IsUsable(chain.first(static_cast<size_t>(depth)))) --depth;
  return depth;
}

bool PrefixIndex::IsUsable(std::span<const Node> chain) const {
  const int64_t depth = static_cast<int64_t>(chain.size());
  for (const GroupId group : cache_.group_ids()) {
    const Policy& policy = cache_.policy(group);
    if (policy.holds() == Holds::kSource) continue;  // the sequence has it
    const int64_t first = policy.holds() == Holds::kState
                              ? depth - 1
                              : policy.FirstVisible(depth * kBlockTokens) / kBlockTokens;
    for (const Node node : chain.subspan(static_cast<size_t>(first))) {
      const Entry& entry = entries_[static_cast<size_t>(node)];
      if (entry.ids[group] == kNoBlock) return false;
    }
  }
  return true;
}

void PrefixIndex::Find(std::span<const TokenId> tokens, Sequence& sequence, uint64_t source) {
  KVANT_CHECK(sequence.length == 0);
  chain_.clear();
  Node node = kRoot;
  for (int64_t number = 0; (number + 1) * kBlockTokens <= static_cast<int64_t>(tokens.size());
       ++number) {
    node = Child({node, source}, BlockOf(tokens, number));
    if (node == kRoot) break;
    chain_.push_back(node);
  }
  const int64_t depth = UsableDepth(chain_);
  chain_.resize(static_cast<size_t>(depth));
  cache_.Attach(sequence, depth, [this](GroupId group, int64_t number) {
    const Entry& entry = entries_[static_cast<size_t>(chain_[static_cast<size_t>(number)])];
    return entry.ids[group];
  });
  Touch(chain_);
}

// The bytes that a node for a block of the sequence refers to, states left out.
uint64_t PrefixIndex::BytesOf(const Sequence& sequence, int64_t number) const {
  uint64_t bytes = 0;
  for (const GroupId group : cache_.group_ids()) {
    if (cache_.policy(group).holds() != Holds::kPositions) continue;
    const bool is_held = EntryAt(sequence.tables[group], number * kBlockTokens) != nullptr;
    bytes += is_held ? cache_.shape(group).block_bytes() : 0;
  }
  return bytes;
}

// Gives up what was used least recently until `bytes` more are allowed; false if they never are, or
// only without `kept` and the nodes above it.
bool PrefixIndex::MakeRoom(uint64_t bytes, Node kept) {
  if (bytes > bytes_max_) return false;
  while (bytes_ > bytes_max_ - bytes) {
    const bool has_leaf = !leaves_.empty() && leaves_.begin()->second != kept;
    if (!has_leaf || !GiveUpLeaf()) return false;
  }
  return true;
}

PrefixIndex::Node PrefixIndex::NewChild(Place place, std::span<const TokenId> block,
                                        const Sequence& sequence, int64_t number) {
  Node node = static_cast<Node>(entries_.size());
  if (unused_.empty()) {
    entries_.emplace_back();
  } else {
    node = unused_.back();
    unused_.pop_back();
  }
  Entry& entry = entries_[static_cast<size_t>(node)];
  entry.parent = place.parent;
  entry.source = place.source;
  entry.children = 0;
  std::copy(block.begin(), block.end(), entry.tokens.begin());
  if (rows_ != nullptr) rows_->AddReferences(block);
  entry.hash = HashOf(place, block);
  for (const GroupId group : cache_.group_ids()) {
    if (cache_.policy(group).holds() != Holds::kPositions) {
      entry.ids.push_back(kNoBlock);
      continue;
    }
    const TableEntry* held = EntryAt(sequence.tables[group], number * kBlockTokens);
    entry.ids.push_back(held == nullptr ? kNoBlock : held->id);
    if (held == nullptr) continue;
    cache_.AddReference(group, held->id);
    bytes_ += cache_.shape(group).block_bytes();
  }
  by_hash_.emplace(entry.hash, node);
  entry.used = ++tick_;
  leaves_.emplace(entry.used, node);
  if (place.parent != kRoot) {
    Entry& above = entries_[static_cast<size_t>(place.parent)];
    if (above.children++ == 0) leaves_.erase(above.used);
  }
  return node;
}

void PrefixIndex::AddStates(Node node, const Sequence& sequence, int64_t length) {
  if (entries_[static_cast<size_t>(node)].has_states) return;
  uint64_t bytes = 0;
  for (const GroupId group : cache_.group_ids()) {
    const bool holds = cache_.policy(group).holds() == Holds::kState;
    if (holds) bytes += cache_.shape(group).block_bytes();
  }
  if (!MakeRoom(bytes, node)) return;
  Entry& entry = entries_[static_cast<size_t>(node)];
  for (const GroupId group : cache_.group_ids()) {
    if (cache_.policy(group).holds() != Holds::kState) continue;
    const BlockId held = State::BlockAt(sequence.tables[group], length);
    if (held == kNoBlock) continue;
    entry.ids[group] = held;
    cache_.AddReference(group, held);
    bytes_ += cache_.shape(group).block_bytes();
    entry.has_states = true;
  }
  states_ += entry.has_states ? 1 : 0;
}

void PrefixIndex::DropStates(Entry& entry) {
  for (const GroupId group : cache_.group_ids()) {
    BlockId& block = entry.ids[group];
    if (cache_.policy(group).holds() != Holds::kState || block == kNoBlock) continue;
    cache_.Release(group, block);
    bytes_ -= cache_.shape(group).block_bytes();
    block = kNoBlock;
  }
  states_ -= entry.has_states ? 1 : 0;
  entry.has_states = false;
}

bool PrefixIndex::GiveUpState() {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.has_states && (oldest == nullptr || entry.used < oldest->used)) oldest = &entry;
  }
  if (oldest == nullptr) return false;
  DropStates(*oldest);
  return true;
}

void PrefixIndex::Add(std::span<const TokenId> tokens, const Sequence& sequence, States states,
                      uint64_t source) {
  chain_.clear();
  Node parent = kRoot;
  for (int64_t number = 0; (number + 1) * kBlockTokens <= static_cast<int64_t>(tokens.size());
       ++number) {
    const std::span<const TokenId> block = BlockOf(tokens, number);
    const Place place = {parent, source};
    Node node = Child(place, block);
    if (node == kRoot) {
      if (!MakeRoom(BytesOf(sequence, number), parent)) break;
      node = NewChild(place, block, sequence, number);
    }
    chain_.push_back(node);
    parent = node;
  }
  Touch(chain_);
  const int64_t length = std::ssize(chain_) * kBlockTokens;
  const bool is_whole = length + kBlockTokens > static_cast<int64_t>(tokens.size());
  if (states == States::kLeftOut || length == 0 || states_max_ == 0 || !is_whole) return;
  AddStates(chain_.back(), sequence, length);
  while (states_ > states_max_) GiveUpState();
}

int PrefixIndex::references(GroupId group, BlockId block) const {
  int count = 0;
  for (const Entry& entry : entries_) {
    count += !entry.ids.empty() && entry.ids[group] == block ? 1 : 0;
  }
  return count;
}

void PrefixIndex::ListTokens(std::vector<std::span<const TokenId>>& lists) const {
  for (const Entry& entry : entries_) {
    if (!entry.ids.empty()) lists.push_back(entry.tokens);
  }
}

bool PrefixIndex::GiveUpLeaf() {
  if (leaves_.empty()) return false;
  const Node node = leaves_.begin()->second;
  leaves_.erase(leaves_.begin());
  Entry& entry = entries_[static_cast<size_t>(node)];
  DropStates(entry);
  for (const GroupId group : cache_.group_ids()) {
    const BlockId block = entry.ids[group];
    if (block == kNoBlock) continue;
    cache_.Release(group, block);
    bytes_ -= cache_.shape(group).block_bytes();
  }
  const auto [begin, end] = by_hash_.equal_range(entry.hash);
  by_hash_.erase(
      std::find_if(begin, end, [node](const auto& item) { return item.second == node; }));
  entry.ids.clear();
  if (rows_ != nullptr) rows_->Release(entry.tokens);
  unused_.push_back(node);
  if (entry.parent != kRoot) {
    Entry& above = entries_[static_cast<size_t>(entry.parent)];
    if (--above.children == 0) leaves_.emplace(above.used, entry.parent);
  }
  return true;
}

}  // namespace kvant::kv
