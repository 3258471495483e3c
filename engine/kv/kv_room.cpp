// Whether sequences can grow before any of them does: what each group needs at most, and what would
// fit where that is too much.
//
// A step may free blocks behind windows while it goes on, so the need of a window group is bounded
// twice, and the lower bound counts: new blocks on top of all that is held now, and the largest
// ring of each sequence on top of what others hold.
#include <algorithm>

#include <fmt/format.h>

#include "engine/kv/kv_cache.h"

namespace kvant::kv {
namespace {

// The end of a sequence that grows by `growth`, or by `tokens_most` where that is less.
int64_t EndOf(const Growth& growth, int64_t tokens_most) {
  return growth.sequence->length + std::min(growth.tokens, tokens_most);
}

// Blocks that a window group holds at most while a sequence grows from `length` to `end`, dropping
// what falls behind the window after each piece: those from `first_new` on, which are new, and of
// the ones below it as many as `old_from(number)` says are held from that number on.
template <class OldFrom>
int64_t RingPeak(const GroupShape& shape, int64_t length, int64_t end, int64_t piece,
                 int64_t first_new, const OldFrom& old_from) {
  int64_t peak = 0;
  for (int64_t at = length; at < end;) {
    const int64_t dropped =
        std::max<int64_t>(0, shape.FirstVisible(at) - kRewindSlack) / kBlockTokens;
    at = std::min(at + piece, end);
    const int64_t grown = BlocksFor(at) - std::max(first_new, dropped);
    peak = std::max(peak, grown + old_from(dropped));
  }
  return peak;
}

}  // namespace

// Copies of shared blocks included; old blocks of window groups count as held throughout.
int64_t Cache::BlocksToGrow(int group, std::span<const Growth> growths, int64_t tokens_most,
                            int64_t piece) {
  int64_t blocks = 0;
  tails_.clear();
  for (const Growth& growth : growths) {
    const Sequence& sequence = *growth.sequence;
    const int64_t end = EndOf(growth, tokens_most);
    if (end == sequence.length) continue;
    const BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    const int64_t first = sequence.length / kBlockTokens;
    if (!table.entries.empty() && table.entries.back().number == first) {
      // The last of a block's holders writes into it without a copy.
      const BlockId tail = table.entries.back().id;
      const auto earlier = std::count(tails_.begin(), tails_.end(), tail);
      if (references(group, tail) > 1 + earlier) ++blocks;
      tails_.push_back(tail);
    }
    const int64_t first_new = std::max(table.end_block(), first);
    blocks += shape(group).window == 0 ? std::max<int64_t>(0, BlocksFor(end) - first_new)
                                       : RingPeak(shape(group), sequence.length, end, piece,
                                                  first_new, [](int64_t) { return 0; });
  }
  return blocks;
}

// Another bound for a window group, which knows that the sequences let go of what falls behind: all
// that they hold at most, each by itself, beside what something else holds.
int64_t Cache::RingsToGrow(int group, std::span<const Growth> growths, int64_t tokens_most,
                           int64_t piece) {
  const BlockPool& pool = groups_[static_cast<size_t>(group)].pool;
  mentions_.assign(static_cast<size_t>(pool.capacity()), 0);
  for (const Growth& growth : growths) {
    for (const TableEntry& entry : growth.sequence->tables[static_cast<size_t>(group)].entries)
      ++mentions_[static_cast<size_t>(entry.id)];
  }
  const auto ours = [&](BlockId id) {
    return mentions_[static_cast<size_t>(id)] == pool.references(id);
  };
  int64_t held = 0;
  for (BlockId id = 0; id < pool.capacity(); ++id) {
    held += mentions_[static_cast<size_t>(id)] > 0 && ours(id) ? 1 : 0;
  }
  int64_t blocks = -held;  // they are counted with the sequences
  for (const Growth& growth : growths) {
    const Sequence& sequence = *growth.sequence;
    const BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    const int64_t tail = sequence.length / kBlockTokens;
    // A tail that others hold too is copied, so that the sequence has one of its own.
    const auto old_from = [&](int64_t number) {
      return std::count_if(table.entries.begin(), table.entries.end(), [&](const TableEntry& e) {
        return e.number >= number && (ours(e.id) || e.number == tail);
      });
    };
    const int64_t end = EndOf(growth, tokens_most);
    blocks += end == sequence.length ? old_from(0)
                                     : RingPeak(shape(group), sequence.length, end, piece,
                                                std::max(table.end_block(), tail), old_from);
  }
  return blocks;
}

uint64_t Cache::BytesToGrow(std::span<const Growth> growths, int64_t tokens_most, int64_t piece,
                            bool* fits) {
  uint64_t bytes = 0;
  *fits = true;
  for (int group = 0; group < groups(); ++group) {
    const Group& pools = groups_[static_cast<size_t>(group)];
    int64_t blocks = BlocksToGrow(group, growths, tokens_most, piece);
    const bool enough = blocks <= pools.pool.free() && bytes_max_ == 0;
    if (!enough && pools.shape.window > 0) {
      blocks = std::min(blocks, RingsToGrow(group, growths, tokens_most, piece));
    }
    if (blocks > pools.pool.free()) *fits = false;
    bytes += static_cast<uint64_t>(std::max<int64_t>(0, blocks)) * pools.block_bytes;
  }
  if (bytes_max_ != 0 && bytes_used_ + bytes > bytes_max_) *fits = false;
  return bytes;
}

Status Cache::CheckRoom(std::span<const Growth> growths, int64_t piece) {
  int64_t longest = 0;
  for (const Growth& growth : growths) {
    longest = std::max(longest, growth.tokens);
    if (growth.sequence->length + growth.tokens > context_) {
      return MakeError(ErrorCode::kContextFull, "{} tokens and {} more exceed the context of {}",
                       growth.sequence->length, growth.tokens, context_);
    }
  }
  bool fits = false;
  uint64_t bytes = BytesToGrow(growths, longest, piece, &fits);
  while (!fits && reclaim_ && reclaim_()) bytes = BytesToGrow(growths, longest, piece, &fits);
  if (fits) return {};

  const auto fitting = [&](std::span<const Growth> some, int64_t tokens) {
    bool all = false;
    BytesToGrow(some, tokens, piece, &all);
    return all;
  };
  size_t sequences = growths.size();
  while (sequences > 0 && !fitting(growths.first(sequences), longest)) --sequences;
  int64_t tokens = 0;
  for (int64_t end = longest; end - tokens > 1;) {
    const int64_t middle = tokens + (end - tokens) / 2;
    (fitting(growths, middle) ? tokens : end) = middle;
  }
  uint64_t held = 0;
  for (const Group& group : groups_) {
    held += static_cast<uint64_t>(group.pool.capacity()) * group.block_bytes;
  }
  if (bytes_max_ != 0) held = std::min(held, bytes_max_);
  return MakeError(ErrorCode::kOutOfMemory,
                   "KV cache: {} bytes are needed for {} more tokens of {} sequences, {} of {} are "
                   "free; {} of the sequences, or {} tokens of each, would fit",
                   bytes, longest, growths.size(), held - std::min(held, bytes_used_), held,
                   sequences, tokens);
}

}  // namespace kvant::kv
