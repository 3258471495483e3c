#include "engine/kv/row_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <xxhash.h>

#include "base/check.h"
#include "base/counted.h"

namespace kvant::kv {

// ---- Making and finding -------------------------------------------------------------------------

Result<TokenId> RowBlocks::Add(std::span<const float> rows) {
  if (dim_ == 0) {
    return MakeError(ErrorCode::kNotSupported,
                     "rows: layers of this model read the ids of tokens, which rows do not have");
  }
  const int64_t count = std::ssize(rows) / dim_;
  if (count == 0 || std::ssize(rows) != count * dim_) {
    return MakeError(ErrorCode::kInvalid, "rows: expected {} numbers for each row, found {}", dim_,
                     rows.size());
  }
  const auto wrong = std::ranges::find_if(rows, [](float one) { return !std::isfinite(one); });
  if (wrong != rows.end()) {
    const int64_t place = wrong - rows.begin();
    return MakeError(ErrorCode::kInvalid,
                     "rows: number {} of row {}: expected a finite number, found {}", place % dim_,
                     place / dim_, *wrong);
  }
  const uint64_t hash = XXH64(rows.data(), rows.size_bytes(), 0);
  for (const std::unique_ptr<Held>& block : blocks_) {
    if (block->hash != hash || block->rows.size() != rows.size()) continue;
    // Bits are compared: 0 and -0 are two contents.
    if (std::memcmp(block->rows.data(), rows.data(), rows.size_bytes()) != 0) continue;
    ++block->holders;
    return block->first;
  }
  if (count > int64_t{ids_end_} - next_) {
    return MakeError(ErrorCode::kOutOfMemory, "rows: no ids are left for {}: there is room for {}",
                     Counted(count, "row"), ids_end_ - next_);
  }
  auto block = std::make_unique<Held>();
  block->first = next_;
  block->rows.assign(rows.begin(), rows.end());
  block->hash = hash;
  block->holders = 1;
  next_ += static_cast<TokenId>(count);
  blocks_.push_back(std::move(block));
  return blocks_.back()->first;
}

Status RowBlocks::Free(TokenId first) {
  Held* const block = HeldOf(first);
  if (block == nullptr || block->first != first || block->holders == 0) {
    return MakeError(ErrorCode::kInvalid, "rows: no block that is held begins with the id {}",
                     first);
  }
  --block->holders;
  DropUnheld();
  return {};
}

RowBlocks::Held* RowBlocks::HeldOf(TokenId id) const {
  const auto behind =
      std::ranges::upper_bound(blocks_, id, {}, [](const auto& block) { return block->first; });
  if (behind == blocks_.begin()) return nullptr;
  Held* const block = std::prev(behind)->get();
  return (id - block->first) * dim_ < std::ssize(block->rows) ? block : nullptr;
}

const float* RowBlocks::Find(TokenId id) const {
  if (id < vocab_) return nullptr;
  const Held* const block = HeldOf(id);
  return block == nullptr ? nullptr : block->rows.data() + (id - block->first) * dim_;
}

RowBlocks::Block RowBlocks::BlockOf(TokenId id) const {
  const Held* const block = HeldOf(id);
  KVANT_CHECK(block != nullptr);
  return {block->first, block->rows};
}

// ---- Counting -----------------------------------------------------------------------------------

void RowBlocks::Count(std::span<const TokenId> tokens, int64_t Held::*count, int64_t change) {
  if (empty()) return;
  Held* last = nullptr;
  for (const TokenId id : tokens) {
    if (id < vocab_) continue;
    const bool in_last =
        last != nullptr && id >= last->first && (id - last->first) * dim_ < std::ssize(last->rows);
    if (!in_last) last = HeldOf(id);
    KVANT_CHECK(last != nullptr);
    last->*count += change;
  }
  if (last != nullptr && change < 0) DropUnheld();
}

void RowBlocks::DropUnheld() {
  std::erase_if(blocks_,
                [](const auto& block) { return block->holders == 0 && block->references == 0; });
}

void RowBlocks::AddReferences(std::span<const TokenId> tokens) {
  Count(tokens, &Held::references, 1);
}

void RowBlocks::Release(std::span<const TokenId> tokens) { Count(tokens, &Held::references, -1); }

void RowBlocks::Hold(std::span<const TokenId> tokens) { Count(tokens, &Held::holders, 1); }

void RowBlocks::LetGo(std::span<const TokenId> tokens) { Count(tokens, &Held::holders, -1); }

// ---- Invariants ---------------------------------------------------------------------------------

Status RowBlocks::Check(std::span<const std::span<const TokenId>> lists) const {
  std::vector<int64_t> expected(blocks_.size());
  for (const std::span<const TokenId> list : lists) {
    for (const TokenId id : list) {
      if (id < vocab_) continue;
      const Held* const block = HeldOf(id);
      if (block == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "KV check: no rows have the id {} of a sequence", id);
      }
      const auto place = std::ranges::find(blocks_, block, &std::unique_ptr<Held>::get);
      ++expected[static_cast<size_t>(place - blocks_.begin())];
    }
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i]->references == expected[i]) continue;
    return MakeError(ErrorCode::kCorrupt, "KV check: rows from id {}: {} references, {} counted",
                     blocks_[i]->first, blocks_[i]->references, expected[i]);
  }
  return {};
}

}  // namespace kvant::kv
