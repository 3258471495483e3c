#include "engine/kv/session_copy.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/result.h"

namespace kvant::kv {
namespace {

bool HaveOneShape(const Cache& a, const Cache& b) {
  if (a.groups() != b.groups() || a.source() != b.source()) return false;
  for (const GroupId group : a.group_ids()) {
    const GroupShape& first = a.shape(group);
    const GroupShape& second = b.shape(group);
    if (first.window != second.window || first.policy != second.policy ||
        first.layers != second.layers || SessionShape(first) != SessionShape(second)) {
      return false;
    }
  }
  return true;
}

class SessionCopier {
 public:
  SessionCopier(const Cache& from, Cache& to) : from_(from), to_(to), copies_(from.groups()) {}

  Result<LoadedSession> Copy(const SavedSession& session) {
    LoadedSession out;
    Status status;
    for (const SavedSource& source : session.sources) {
      out.sources.push_back({source.kind, {source.input.begin(), source.input.end()}, {}});
      if (status.ok() && session.source_rows) {
        status = CopySource(*source.holder, out.sources.back());
      }
    }
    for (const std::span<const float> rows : session.row_blocks) {
      out.row_blocks.emplace_back(rows.begin(), rows.end());
    }
    for (const SavedSequence& sequence : session.sequences) {
      if (status.ok()) status = CopySequence(sequence, out.sequences.emplace_back());
    }
    for (const GroupId group : copies_.ids()) {
      for (const auto& [block, copy] : copies_[group].made) to_.Release(group, copy);
    }
    to_.Settle();
    if (status.ok()) status = from_.status();
    if (status.ok()) status = to_.status();
    if (status.ok()) return out;
    FreeLoaded(out, to_);
    return status.error();
  }

 private:
  // The copies of blocks of a group, each with a reference of its own until all tables are made.
  struct Copies {
    std::map<BlockId, BlockId> made;
    BlockId last = kNoBlock;
  };

  void CopyBytes(GroupId group, BlockId block, BlockId copy) const {
    const GroupShape& shape = to_.shape(group);
    const SlabBytes slab = shape.slab();
    for (const int layer : shape.layers) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        const OpenBlock read = from_.Open(layer, head, block, Access::kRead);
        const OpenBlock written = to_.Open(layer, head, copy, Access::kChange);
        std::memcpy(written.place().keys, read.place().keys, slab.keys);
        std::memcpy(written.place().values, read.place().values, slab.values);
        std::memcpy(written.place().key_scales, read.place().key_scales, slab.key_scales);
        std::memcpy(written.place().value_scales, read.place().value_scales, slab.value_scales);
      }
    }
  }

  Status AddEntry(GroupId group, const TableEntry& entry, BlockTable& table) {
    Copies& copies = copies_[group];
    const auto known = copies.made.find(entry.id);
    BlockId copy = known == copies.made.end() ? kNoBlock : known->second;
    if (copy == kNoBlock) {
      KVANT_ASSIGN(copy, to_.TakeBlock(group, copies.last));
      copies.last = copies.made[entry.id] = copy;
      CopyBytes(group, entry.id, copy);
    }
    to_.AddReference(group, copy);
    table.entries.push_back({entry.number, copy});
    return {};
  }

  Status CopySequence(const SavedSequence& sequence, LoadedSequence& out) {
    const Sequence& kv = *sequence.kv;
    out.kv = to_.NewSequence();
    out.tokens.assign(sequence.tokens.begin(), sequence.tokens.end());
    out.logits.assign(sequence.logits.begin(), sequence.logits.end());
    out.given_by_tokens = sequence.given_by_tokens;
    out.source = sequence.source;
    if (kv.length > to_.context()) {
      return MakeError(ErrorCode::kContextFull, "{} tokens do not fit the context of {}", kv.length,
                       to_.context());
    }
    out.kv.length = kv.length;
    out.kv.pruned = kv.pruned;
    for (const GroupId group : to_.group_ids()) {
      if (to_.policy(group).holds() == Holds::kSource) continue;
      BlockTable& table = out.kv.tables[group];
      table.first_position = kv.tables[group].first_position;
      table.length = kv.tables[group].length;
      for (const TableEntry& entry : kv.tables[group].entries) {
        KVANT_TRY(AddEntry(group, entry, table));
      }
    }
    return to_.CheckTables(out.kv);
  }

  Status CopySource(const Sequence& holder, LoadedSource& out) {
    int64_t positions = 0;
    for (const GroupId group : from_.group_ids()) {
      if (from_.policy(group).holds() != Holds::kSource) continue;
      positions = std::max(positions, holder.tables[group].length);
    }
    KVANT_ASSIGN(Source rows, to_.NewSource(positions));
    to_.EndEncoding(rows);
    for (const GroupId group : to_.group_ids()) {
      const std::vector<TableEntry>& copies = rows.tables[group].entries;
      for (size_t i = 0; i < copies.size(); ++i) {
        CopyBytes(group, holder.tables[group].entries[i].id, copies[i].id);
      }
    }
    out.rows = std::move(rows);
    return {};
  }

  const Cache& from_;
  Cache& to_;
  IdVector<GroupId, Copies> copies_;
};

}  // namespace

Result<LoadedSession> CopySession(const Cache& from, const SavedSession& session, Cache& to) {
  if (!HaveOneShape(from, to)) {
    return MakeError(ErrorCode::kNotSupported,
                     "the KV caches have other types, windows or layers in their groups");
  }
  return SessionCopier(from, to).Copy(session);
}

}  // namespace kvant::kv
