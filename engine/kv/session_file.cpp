// Writing session files; session_reader.cpp loads them.
#include "engine/kv/session_file.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/output_file.h"
#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/session_sections.h"

namespace kvant::kv {
namespace {

static_assert(std::endian::native == std::endian::little,
              "session files are written as they lie in memory");

// ---- Rows of a block ----------------------------------------------------------------------------

using ReadRow = void (*)(const Cache&, CacheHead, const TableEntry&, int64_t, std::byte*, void*);

void PutRows(SectionWriter& out, const Cache& cache, CacheHead at, BlockId block, uint32_t rows,
             KvType type, int dim, ReadRow read) {
  std::vector<std::byte> elements(cpu::KvRowBytes(type, dim));
  const size_t scale_bytes = cpu::KvScaleBytes(type, dim);
  std::vector<std::byte> scales(rows * scale_bytes);
  for (uint32_t row = 0; row < rows; ++row) {
    read(cache, at, {0, block}, row, elements.data(), scales.data() + row * scale_bytes);
    out.PutBytes(elements.data(), elements.size());
  }
  out.PutBytes(scales.data(), scales.size());
}

void PutBlock(SectionWriter& out, const Cache& cache, GroupId group, BlockId block, uint32_t rows) {
  const GroupShape& shape = cache.shape(group);
  out.Put(rows);
  if (shape.holds_states()) {
    for (const int layer : shape.layers) {
      const OpenBlock state = cache.Open(layer, 0, block, Access::kRead);
      out.PutBytes(state.place().keys, static_cast<size_t>(shape.k_dim) * sizeof(float));
    }
    return;
  }
  for (const int layer : shape.layers) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const CacheHead at{layer, head};
      PutRows(out, cache, at, block, rows, shape.k_type, shape.k_dim, ReadKeyRow);
      PutRows(out, cache, at, block, rows, shape.v_type, shape.v_dim, ReadValueRow);
    }
  }
}

}  // namespace

// ---- Header -------------------------------------------------------------------------------------

uint32_t SessionVersion(const Cache& cache) {
  return HasSources(cache) ? kSessionVersionOfSources : kSessionVersion;
}

// In the number that says whether keys are rotated.
constexpr int32_t kShiftedKeys = 2;

std::array<int32_t, 8> SessionShape(const GroupShape& shape) {
  return {shape.kv_heads,
          shape.k_dim,
          shape.v_dim,
          static_cast<int32_t>(shape.k_type),
          static_cast<int32_t>(shape.v_type),
          shape.rotate_keys + (shape.shifts_keys() ? kShiftedKeys : 0),
          shape.rotate_values,
          static_cast<int32_t>(shape.layers.size())};
}

namespace {

void PutShape(SectionWriter& out, const GroupShape& shape) {
  out.Put<int64_t>(shape.window);
  for (const int32_t value : SessionShape(shape)) out.Put(value);
  for (const int layer : shape.layers) out.Put<int32_t>(layer);
}

Status PutHeader(SectionWriter& out, uint64_t fingerprint, const Cache& cache,
                 const SavedSession& session) {
  out.PutBytes(kSessionMagic.data(), kSessionMagic.size());
  out.Put(session.row_blocks.empty() ? SessionVersion(cache) : kSessionVersionOfRows);
  out.Put(static_cast<uint32_t>(cache.groups()));
  out.Put(fingerprint);
  for (const GroupId group : cache.group_ids()) PutShape(out, cache.shape(group));
  out.Put(static_cast<uint32_t>(session.sequences.size()));
  if (HasSources(cache)) {
    out.Put(static_cast<uint32_t>(session.sources.size()));
    out.Put(static_cast<uint8_t>(session.source_rows));
  }
  if (!session.row_blocks.empty()) out.Put(static_cast<uint32_t>(session.row_blocks.size()));
  return out.End();
}

// ---- Sequences ----------------------------------------------------------------------------------

// The blocks of a group in the order in which tables mention them first, and how many of its rows
// each block holds.
struct SavedBlocks {
  std::map<BlockId, uint32_t> index;
  std::vector<BlockId> ids;
  std::vector<uint32_t> rows;

  uint32_t Add(BlockId block, int64_t filled) {
    const auto [place, added] = index.emplace(block, static_cast<uint32_t>(ids.size()));
    if (added) {
      ids.push_back(block);
      rows.push_back(0);
    }
    uint32_t& count = rows[place->second];
    count = std::max(count, static_cast<uint32_t>(std::min(filled, kBlockTokens)));
    return place->second;
  }
};

void PutSequence(SectionWriter& out, const Cache& cache, const SavedSequence& sequence,
                 IdVector<GroupId, SavedBlocks>& blocks) {
  const Sequence& kv = *sequence.kv;
  out.Put(kv.length);
  out.Put(static_cast<uint8_t>((sequence.logits.empty() ? 0 : kSessionHasLogits) |
                               (sequence.given_by_tokens ? kSessionGivenByTokens : 0)));
  if (HasSources(cache)) out.Put(sequence.source);
  out.Put(static_cast<uint32_t>(kv.pruned.size()));
  for (const PositionRange& range : kv.pruned) {
    out.Put(range.begin);
    out.Put(range.end);
  }
  out.PutBytes(sequence.tokens.data(), sequence.tokens.size_bytes());
  out.PutBytes(sequence.logits.data(), sequence.logits.size_bytes());
  for (const GroupId group : blocks.ids()) {
    if (cache.policy(group).holds() == Holds::kSource) continue;
    const BlockTable& table = kv.tables[group];
    out.Put(table.first_position);
    out.Put(static_cast<uint32_t>(table.entries.size()));
    for (const TableEntry& entry : table.entries) {
      const bool state = cache.shape(group).holds_states();
      out.Put(entry.number);
      out.Put(blocks[group].Add(entry.id, state ? 1 : kv.length - entry.number * kBlockTokens));
    }
  }
}

// The groups that hold the decoder's keys and values of sources.
bool HoldsRowsOfSources(const Cache& cache, GroupId group, const Sequence& holder) {
  return cache.policy(group).holds() == Holds::kSource && holder.tables[group].length > 0;
}

int64_t PositionsOf(const Cache& cache, const Sequence& holder) {
  int64_t positions = 0;
  for (const GroupId group : cache.group_ids()) {
    if (HoldsRowsOfSources(cache, group, holder)) positions = holder.tables[group].length;
  }
  return positions;
}

Status PutSource(SectionWriter& out, const Cache& cache, const SavedSource& source) {
  out.Put(static_cast<uint8_t>(source.kind));
  out.Put(PositionsOf(cache, *source.holder));
  out.Put(static_cast<uint64_t>(source.input.size()));
  out.PutBytes(source.input.data(), source.input.size());
  out.Put(source.hash);
  return out.End();
}

Status PutSourceRows(SectionWriter& out, const Cache& cache, const Sequence& holder) {
  for (const GroupId group : cache.group_ids()) {
    if (!HoldsRowsOfSources(cache, group, holder)) continue;
    const BlockTable& table = holder.tables[group];
    for (const TableEntry& entry : table.entries) {
      const int64_t rows = std::min(table.length - entry.number * kBlockTokens, kBlockTokens);
      PutBlock(out, cache, group, entry.id, static_cast<uint32_t>(rows));
      KVANT_TRY(out.End());
    }
  }
  return {};
}

}  // namespace

Status WriteSessionFile(const std::string& path, const SessionModel& model, const Cache& cache,
                        const SavedSession& session) {
  KVANT_ASSIGN(OutputFile file, OutputFile::Create(path));
  SectionWriter out(file);
  KVANT_TRY(PutHeader(out, model.fingerprint, cache, session));
  for (const SavedSource& source : session.sources) KVANT_TRY(PutSource(out, cache, source));
  for (const std::span<const float> block : session.row_blocks) {
    out.Put(std::ssize(block) / model.row_dim);
    out.PutBytes(block.data(), block.size_bytes());
    KVANT_TRY(out.End());
  }
  IdVector<GroupId, SavedBlocks> blocks(cache.groups());
  for (const SavedSequence& sequence : session.sequences) {
    PutSequence(out, cache, sequence, blocks);
    KVANT_TRY(out.End());
  }
  for (const GroupId group : blocks.ids()) {
    if (cache.policy(group).holds() == Holds::kSource) continue;
    const SavedBlocks& saved = blocks[group];
    out.Put(static_cast<uint32_t>(saved.ids.size()));
    KVANT_TRY(out.End());
    for (size_t i = 0; i < saved.ids.size(); ++i) {
      PutBlock(out, cache, group, saved.ids[i], saved.rows[i]);
      KVANT_TRY(out.End());
    }
  }
  for (const SavedSource& source : session.sources) {
    if (session.source_rows) KVANT_TRY(PutSourceRows(out, cache, *source.holder));
  }
  if (!session.note.empty()) {
    out.Put(static_cast<uint32_t>(session.note.size()));
    out.PutBytes(session.note.data(), session.note.size());
    KVANT_TRY(out.End());
  }
  KVANT_TRY(cache.status());  // what a store could not show is not worth keeping
  return file.Commit();
}

}  // namespace kvant::kv
