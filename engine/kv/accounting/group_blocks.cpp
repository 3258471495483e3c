// Taking, copying and giving up blocks, with the budget, the log and the contents kept up to date.
#include "engine/kv/accounting/group_blocks.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/result.h"

namespace kvant::kv {

void Budget::MakeCopies() {
  for (const BlockCopy& copy : copies) contents->Copy(copy);
  copies.clear();
}

Status GroupBlocks::Take(BlockId previous, BlockId* block) {
  Budget& budget = *budget_;
  const auto fits = [&] {
    return budget.bytes_max == 0 || budget.bytes_used + block_bytes_ <= budget.bytes_max;
  };
  while (true) {
    *block = fits() ? pool_.Take(previous) : kNoBlock;
    if (*block != kNoBlock) break;
    if (budget.reclaim && budget.reclaim(fits() ? group_ : kAnyGroup)) continue;
    const bool limited = budget.bytes_max != 0;
    return MakeError(
        ErrorCode::kOutOfMemory,
        "KV cache: {} bytes are needed for another {} positions, {} of {} are free", block_bytes_,
        kBlockTokens,
        limited ? budget.bytes_max - budget.bytes_used
                : static_cast<uint64_t>(pool_.free()) * block_bytes_,
        limited ? budget.bytes_max : static_cast<uint64_t>(pool_.capacity()) * block_bytes_);
  }
  budget.bytes_used += block_bytes_;
  budget.bytes_peak = std::max(budget.bytes_peak, budget.bytes_used);
  committed_ = std::max(committed_, static_cast<int64_t>(IndexOf(*block)) + 1);
  ++budget.blocks_taken;
  if (budget.log) {
    budget.log(fmt::format("KV event: block_alloc group={} block={}", group_, *block));
  }
  return {};
}

Status GroupBlocks::TakeClear(BlockId previous, BlockId* block) {
  KVANT_TRY(Take(previous, block));
  budget_->contents->Clear(group_, *block);
  return {};
}

void GroupBlocks::Release(BlockId block) {
  Budget& budget = *budget_;
  const bool last = pool_.references(block) == 1;
  // A copy that was marked and not made yet still needs what the block holds.
  const auto reads = [&](const BlockCopy& copy) {
    return copy.group == group_ && copy.from == block;
  };
  if (last && std::any_of(budget.copies.begin(), budget.copies.end(), reads)) {
    budget.MakeCopies();
  }
  pool_.Release(block);
  if (!last) return;
  budget.bytes_used -= block_bytes_;
  budget.contents->Discard(group_, block);
}

Status GroupBlocks::CopyOnWrite(TableEntry& entry) {
  if (references(entry.id) == 1) return {};
  Budget& budget = *budget_;
  BlockId copy = kNoBlock;
  KVANT_TRY(Take(kNoBlock, &copy));
  budget.copies.push_back({group_, entry.id, copy});
  budget.bytes_copied += block_bytes_;
  ++budget.blocks_copied;
  if (budget.log) {
    budget.log(fmt::format("KV event: cow_copy group={} from={} to={}", group_, entry.id, copy));
  }
  // The original keeps at least one other holder, so it stays what it is until it is copied.
  Release(entry.id);
  entry.id = copy;
  return {};
}

void GroupBlocks::AddReferences(const BlockTable& table) {
  for (const TableEntry& entry : table.entries) AddReference(entry.id);
}

void GroupBlocks::Shrink(BlockTable& table, int64_t positions) {
  while (!table.entries.empty() && table.entries.back().number * kBlockTokens >= positions) {
    Release(table.entries.back().id);
    table.entries.pop_back();
  }
}

void GroupBlocks::DropFront(BlockTable& table, size_t count, PositionRange positions) {
  const auto end = table.entries.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto entry = table.entries.begin(); entry != end; ++entry) Release(entry->id);
  table.entries.erase(table.entries.begin(), end);
  dropped_ += static_cast<uint64_t>(positions.end / kBlockTokens - positions.begin / kBlockTokens);
  if (budget_->log) {
    budget_->log(fmt::format("KV event: evict group={} positions=[{},{})", group_, positions.begin,
                             positions.end));
  }
}

}  // namespace kvant::kv
