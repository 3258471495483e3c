// A bitmap of free blocks: taking the successor is one test, taking the lowest scans words from a
// watermark.
#include "engine/kv/accounting/block_pool.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace kvant::kv {
namespace {

constexpr size_t kWordBits = 64;

size_t Word(BlockId block) { return IndexOf(block) / kWordBits; }
uint64_t Bit(BlockId block) { return uint64_t{1} << (IndexOf(block) % kWordBits); }

}  // namespace

BlockPool::BlockPool(int64_t blocks)
    : references_(static_cast<size_t>(blocks), 0),
      free_bits_((static_cast<size_t>(blocks) + kWordBits - 1) / kWordBits, 0) {
  for (const BlockId block : references_.ids()) free_bits_[Word(block)] |= Bit(block);
}

BlockId BlockPool::Take(BlockId previous) {
  BlockId block = kNoBlock;
  const BlockId next = previous == kNoBlock ? kNoBlock : Successor(previous);
  if (next != kNoBlock && IndexOf(next) < references_.size() &&
      (free_bits_[Word(next)] & Bit(next)) != 0) {
    block = next;
  } else {
    while (first_word_ < free_bits_.size() && free_bits_[first_word_] == 0) ++first_word_;
    if (first_word_ == free_bits_.size()) return kNoBlock;
    block = IdAt<BlockId>(first_word_ * kWordBits +
                          static_cast<size_t>(std::countr_zero(free_bits_[first_word_])));
  }
  free_bits_[Word(block)] &= ~Bit(block);
  references_[block] = 1;
  ++used_;
  return block;
}

void BlockPool::AddReference(BlockId block) {
  KVANT_CHECK(references(block) > 0);
  ++references_[block];
}

void BlockPool::Release(BlockId block) {
  KVANT_CHECK(references(block) > 0);
  if (--references_[block] > 0) return;
  free_bits_[Word(block)] |= Bit(block);
  first_word_ = std::min(first_word_, Word(block));
  --used_;
}

}  // namespace kvant::kv
