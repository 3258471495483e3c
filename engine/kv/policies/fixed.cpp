// A source's blocks: taken at once, given up at once.
#include "engine/kv/policies/fixed.h"

#include "base/result.h"

namespace kvant::kv {

void Fixed::Free(GroupBlocks& blocks, BlockTable& table) const {
  blocks.Shrink(table, 0);
  table.length = 0;
}

Status Fixed::TakeSource(GroupBlocks& blocks, BlockTable& table, int64_t length) const {
  for (int64_t number = 0; number < BlocksFor(length); ++number) {
    BlockId block = kNoBlock;
    KVANT_TRY(blocks.TakeClear(table.entries.empty() ? kNoBlock : table.entries.back().id, &block));
    table.entries.push_back({number, block});
  }
  table.length = length;
  return {};
}

Status Fixed::Check(const BlockTable& table, const Sequence& /*sequence*/) const {
  for (size_t i = 0; i < table.entries.size(); ++i) {
    if (table.entries[i].number != static_cast<int64_t>(i)) {
      return MakeError(ErrorCode::kCorrupt, "expected block {} of the source, found {}", i,
                       table.entries[i].number);
    }
  }
  if (static_cast<int64_t>(table.entries.size()) == BlocksFor(table.length)) return {};
  return MakeError(ErrorCode::kCorrupt, "a source of {} positions: expected {} blocks, found {}",
                   table.length, BlocksFor(table.length), table.entries.size());
}

}  // namespace kvant::kv
