// Reads a session file, checks it, takes blocks and fills them.
#include "engine/kv/session_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/counted.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_rows.h"
#include "kvant/session_options.h"

namespace kvant::kv {
namespace {

// ---- Rows of a block ----------------------------------------------------------------------------

using WriteRow = void (*)(const Cache&, CacheHead, const TableEntry&, int64_t, const std::byte*,
                          const void*);

// One side, keys or values, of a block in one layer and head.
struct Side {
  KvType type;
  int dim;
  WriteRow write;
};

// The quantizer never gives a negative or an infinite scale. Every code is a valid value, and a NaN
// scale is, too: rows of pruned positions may never have been written.
Status CheckScales(const SectionReader& in, KvType type, std::span<const std::byte> scales) {
  return cpu::VisitKvFormat(type, [&]<class Format>(Format) -> Status {
    if constexpr (Format::kHasScales) {
      for (size_t at = 0; at < scales.size(); at += Format::kScaleBytes) {
        const float scale = Format::LoadScale(scales.data() + at);
        if (!(scale < 0.0f) && !std::isinf(scale)) continue;
        return in.Corrupt(fmt::format("{} row: expected a finite scale from 0 on, found {}",
                                      Format::kName, scale));
      }
    }
    return {};
  });
}

Status GetRows(SectionReader& in, Cache& cache, CacheHead at, BlockId block, int64_t rows,
               const Side& side) {
  const size_t count = static_cast<size_t>(rows);
  const size_t bytes = cpu::KvRowBytes(side.type, side.dim);
  const size_t scale_bytes = cpu::KvScaleBytes(side.type, side.dim);
  const std::byte* elements = nullptr;
  const std::byte* scales = nullptr;
  KVANT_TRY(in.GetSpan(count * bytes, &elements));
  KVANT_TRY(in.GetSpan(count * scale_bytes, &scales));
  KVANT_TRY(CheckScales(in, side.type, {scales, count * scale_bytes}));
  for (size_t row = 0; row < count; ++row) {
    side.write(cache, at, {0, block}, static_cast<int64_t>(row), elements + row * bytes,
               scales + row * scale_bytes);
  }
  return {};
}

}  // namespace

Status SessionReader::GetBlock(GroupId group, BlockId block, int64_t rows) {
  const GroupShape& shape = cache_.shape(group);
  uint32_t found = 0;
  KVANT_TRY(in_.Get(&found));
  if (found != rows) {
    return in_.Corrupt(
        fmt::format("group {}: rows of a block: expected {}, found {}", group, rows, found));
  }
  for (const int layer : shape.layers) {
    if (!shape.holds_states()) break;
    const size_t bytes = static_cast<size_t>(shape.k_dim) * sizeof(float);
    const OpenBlock state = cache_.Open(layer, 0, block, Access::kChange);
    KVANT_TRY(in_.GetBytes(state.place().keys, bytes));
  }
  if (shape.holds_states()) return in_.End("cache");
  for (const int layer : shape.layers) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const CacheHead at{layer, head};
      KVANT_TRY(GetRows(in_, cache_, at, block, rows, {shape.k_type, shape.k_dim, WriteKeyRow}));
      KVANT_TRY(GetRows(in_, cache_, at, block, rows, {shape.v_type, shape.v_dim, WriteValueRow}));
    }
  }
  return in_.End("cache");
}

// ---- Header -------------------------------------------------------------------------------------

// The header must be the one that this cache would write.
Status SessionReader::CheckHeader(Counts* counts) {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t groups = 0;
  uint64_t model = 0;
  KVANT_TRY(in_.GetBytes(magic.data(), magic.size()));
  if (magic != kSessionMagic) return in_.Corrupt("it does not begin like one");
  KVANT_TRY(in_.Get(&version));
  if (version < kSessionVersion || version > kSessionVersionOfRows) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: session file: expected version {} to {}, found {}", in_.path(),
                     kSessionVersion, kSessionVersionOfRows, version);
  }
  KVANT_TRY(in_.Get(&groups));
  KVANT_TRY(in_.Get(&model));
  if (model != model_.fingerprint) {
    return MakeError(ErrorCode::kNotSupported, "{}: session file: saved with another model",
                     in_.path());
  }
  KVANT_TRY(CheckVersion(version));
  if (groups != static_cast<uint32_t>(cache_.groups())) {
    return in_.Corrupt(fmt::format("groups: expected {}, found {}", cache_.groups(), groups));
  }
  for (const GroupId group : cache_.group_ids()) KVANT_TRY(CheckShape(group));
  KVANT_TRY(GetCounts(version, counts));
  KVANT_TRY(in_.End("header"));
  if (counts->sequences <= cache_.sequences()) return {};
  return MakeError(ErrorCode::kOutOfMemory, "{}: session file: found {}, but there is room for {}",
                   in_.path(), Counted(counts->sequences, "sequence"), cache_.sequences());
}

Status SessionReader::CheckVersion(uint32_t version) const {
  const bool takes_rows = model_.row_dim > 0;
  if (version == SessionVersion(cache_)) return {};
  if (version == kSessionVersionOfRows && takes_rows) return {};
  return in_.Corrupt(
      fmt::format("version: expected {}{} for this model, found {}", SessionVersion(cache_),
                  takes_rows ? fmt::format(" or {}", kSessionVersionOfRows) : "", version));
}

Status SessionReader::GetCounts(uint32_t version, Counts* counts) {
  KVANT_TRY(in_.Get(&counts->sequences));
  if (HasSources(cache_)) {
    KVANT_TRY(in_.Get(&counts->sources));
    KVANT_TRY(in_.Get(&counts->source_rows));
  }
  if (version == kSessionVersionOfRows) {
    const size_t least = sizeof(int64_t) + static_cast<size_t>(model_.row_dim) * sizeof(float);
    KVANT_TRY(in_.GetCount("row blocks", least, &counts->row_blocks));
    if (counts->row_blocks == 0) return in_.Corrupt("row blocks: expected 1 or more, found 0");
  }
  if (counts->sources > counts->sequences) {
    return in_.Corrupt(fmt::format("sources of {} sequences: expected at most as many, found {}",
                                   counts->sequences, counts->sources));
  }
  if (counts->source_rows <= 1) return {};
  return in_.Corrupt(
      fmt::format("rows of sources: expected 0 or 1, found {}", counts->source_rows));
}

Status SessionReader::CheckShape(GroupId group) {
  const GroupShape& shape = cache_.shape(group);
  int64_t window = 0;
  KVANT_TRY(in_.Get(&window));
  std::array<int32_t, 8> found{};
  KVANT_TRY(in_.GetBytes(found.data(), sizeof found));
  if (window != shape.window || found != SessionShape(shape)) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: session file: saved with other types, windows or layers of the KV "
                     "cache (--draft mtp adds layers)",
                     in_.path());
  }
  for (const int layer : shape.layers) {
    int32_t saved = 0;
    KVANT_TRY(in_.Get(&saved));
    if (saved != layer) {
      return in_.Corrupt(
          fmt::format("group {}: cache layer: expected {}, found {}", group, layer, saved));
    }
  }
  return {};
}

// ---- Sequences ----------------------------------------------------------------------------------

// A sequence whose table entries hold indices of the file's blocks.
Status SessionReader::GetSequence(LoadedSequence* sequence) {
  Sequence& kv = sequence->kv;
  uint8_t flags = 0;
  int64_t length = 0;
  KVANT_TRY(in_.Get(&length));
  if (length < 0) return in_.Corrupt(fmt::format("tokens: expected 0 or more, found {}", length));
  if (length > cache_.context()) {
    return MakeError(ErrorCode::kContextFull,
                     "{}: session file: {} saved tokens do not fit the context of {}", in_.path(),
                     length, cache_.context());
  }
  kv.length = length;
  KVANT_TRY(in_.Get(&flags));
  const bool has_logits = (flags & kSessionHasLogits) != 0;
  if ((flags & ~(kSessionHasLogits | kSessionGivenByTokens)) != 0 || (has_logits && length == 0)) {
    return in_.Corrupt(fmt::format("flags of {} tokens: expected 0 to {}, found {}", length,
                                   length > 0 ? 3 : 2, flags));
  }
  sequence->given_by_tokens = (flags & kSessionGivenByTokens) != 0;
  KVANT_TRY(GetSourceNumber(sequence));
  KVANT_TRY(GetPruned(&kv));
  if (sequence->given_by_tokens && !kv.pruned.empty()) {
    return in_.Corrupt("positions are pruned, but the cache is said to be what the tokens give");
  }
  KVANT_TRY(GetTokens(length, &sequence->tokens));
  if (has_logits) {
    const std::byte* logits = nullptr;
    const size_t count = static_cast<size_t>(model_.vocab);
    KVANT_TRY(in_.GetSpan(count * sizeof(float), &logits));
    sequence->logits.resize(count);
    std::memcpy(sequence->logits.data(), logits, count * sizeof(float));
  }
  for (const GroupId group : cache_.group_ids()) {
    if (cache_.policy(group).holds() == Holds::kSource) continue;
    KVANT_TRY(GetTable(group, *sequence, &kv.tables[group]));
  }
  KVANT_TRY(in_.End("sequence"));
  const Status covered = cache_.CheckTables(kv);
  return covered.ok() ? covered : in_.Corrupt(covered.error().message);
}

Status SessionReader::GetPruned(Sequence* kv) {
  uint32_t ranges = 0;
  KVANT_TRY(in_.GetCount("pruned ranges", 2 * sizeof(int64_t), &ranges));
  for (uint32_t i = 0; i < ranges; ++i) {
    const int64_t first = kv->pruned.empty() ? 0 : kv->pruned.back().end + 1;
    PositionRange range{};
    KVANT_TRY(in_.Get(&range.begin));
    KVANT_TRY(in_.Get(&range.end));
    if (range.begin < first || range.end <= range.begin || range.end > kv->length) {
      return in_.Corrupt(
          fmt::format("pruned positions: expected a range in [{}, {}), found [{}, {})", first,
                      kv->length, range.begin, range.end));
    }
    kv->pruned.push_back(range);
  }
  return {};
}

Status SessionReader::GetTokens(int64_t length, std::vector<TokenId>* tokens) {
  const size_t count = static_cast<size_t>(length);
  const std::byte* ids = nullptr;
  KVANT_TRY(in_.GetSpan(count * sizeof(TokenId), &ids));
  tokens->resize(count);
  if (count > 0) std::memcpy(tokens->data(), ids, count * sizeof(TokenId));
  for (const TokenId id : *tokens) {
    if (id < 0 || id >= ids_end_) {
      return in_.Corrupt(
          fmt::format("token: expected an id from 0 to {}, found {}", ids_end_ - 1, id));
    }
  }
  return {};
}

Status SessionReader::GetTable(GroupId group, const LoadedSequence& sequence, BlockTable* table) {
  const int64_t length = sequence.kv.length;
  uint32_t entries = 0;
  table->length = length;
  KVANT_TRY(in_.Get(&table->first_position));
  const PositionRange begins = cache_.policy(group).FirstPositions(
      length, sequence.given_by_tokens ? Origin::kTokens : Origin::kChanged);
  if (table->first_position < begins.begin || table->first_position >= begins.end) {
    const std::string expected = begins.end - begins.begin == 1
                                     ? fmt::format("{}", begins.begin)
                                     : fmt::format("{} to {}", begins.begin, begins.end - 1);
    return in_.Corrupt(fmt::format("group {}: first position: expected {}, found {}", group,
                                   expected, table->first_position));
  }
  if (cache_.shape(group).holds_states()) return GetStates(group, length, table);
  KVANT_TRY(in_.GetCount("blocks of a table", sizeof(int64_t) + sizeof(uint32_t), &entries));
  for (uint32_t i = 0; i < entries; ++i) {
    const int64_t next = table->end_block();
    int64_t number = 0;
    KVANT_TRY(in_.Get(&number));
    if (number < next || number >= BlocksFor(length)) {
      return in_.Corrupt(fmt::format("group {}: block of {} tokens: expected {} to {}, found {}",
                                     group, length, next, BlocksFor(length) - 1, number));
    }
    KVANT_TRY(
        GetEntry(group, number, std::min(length - number * kBlockTokens, kBlockTokens), table));
  }
  return {};
}

// The block of an entry, as a number in the order in which tables mention blocks first.
Status SessionReader::GetEntry(GroupId group, int64_t number, int64_t rows, BlockTable* table) {
  std::vector<FileBlock>& blocks = wanted_[group];
  uint32_t index = 0;
  KVANT_TRY(in_.Get(&index));
  if (index > blocks.size()) {
    return in_.Corrupt(fmt::format("group {}: index of a block: expected at most {}, found {}",
                                   group, blocks.size(), index));
  }
  if (index == blocks.size()) blocks.push_back({number, 0});
  FileBlock& block = blocks[index];
  if (block.number != number) {
    return in_.Corrupt(
        fmt::format("group {}: index {}: expected block {} as in another table, "
                    "found block {}",
                    group, index, block.number, number));
  }
  block.rows = std::max(block.rows, rows);
  table->entries.push_back({number, static_cast<BlockId>(index)});
  return {};
}

// Checkpoints, then the present state, which may be the last checkpoint's.
Status SessionReader::GetStates(GroupId group, int64_t length, BlockTable* table) {
  uint32_t entries = 0;
  KVANT_TRY(in_.GetCount("states of a table", sizeof(int64_t) + sizeof(uint32_t), &entries));
  const int64_t most = length == 0 ? 0 : kStateCheckpointsMax + 1;
  const int64_t least = length == 0 ? 0 : 1;
  if (entries < least || entries > most) {
    return in_.Corrupt(fmt::format("group {}: states of {} tokens: expected {} to {}, found {}",
                                   group, length, least, most, entries));
  }
  for (uint32_t i = 0; i < entries; ++i) {
    const bool present = i + 1 == entries;
    const int64_t first = present                  ? length
                          : table->entries.empty() ? 1
                                                   : table->entries.back().number + 1;
    int64_t number = 0;
    KVANT_TRY(in_.Get(&number));
    if (number < first || number > length) {
      return in_.Corrupt(
          fmt::format("group {}: state {}: expected that of {} to {} tokens, found "
                      "{}",
                      group, i, first, length, number));
    }
    KVANT_TRY(GetEntry(group, number, 1, table));
  }
  return {};
}

// ---- The whole file -----------------------------------------------------------------------------

// Fills new blocks from the file.
Status SessionReader::GetBlocks() {
  for (const GroupId group : cache_.group_ids()) {
    const std::vector<FileBlock>& blocks = wanted_[group];
    std::vector<BlockId>& ids = taken_[group];
    if (cache_.policy(group).holds() == Holds::kSource) continue;
    uint32_t count = 0;
    KVANT_TRY(in_.Get(&count));
    KVANT_TRY(in_.End("list of blocks"));
    if (count != blocks.size()) {
      return in_.Corrupt(
          fmt::format("group {}: blocks: expected {}, found {}", group, blocks.size(), count));
    }
    for (const FileBlock& block : blocks) {
      KVANT_ASSIGN(const BlockId id, cache_.TakeBlock(group, ids.empty() ? kNoBlock : ids.back()));
      ids.push_back(id);
      KVANT_TRY(GetBlock(group, id, block.rows));
    }
  }
  return {};
}

// Gives tables the blocks that were taken, with references of their own.
void SessionReader::Connect(std::vector<LoadedSequence>& sequences) {
  for (LoadedSequence& sequence : sequences) {
    for (const GroupId group : cache_.group_ids()) {
      for (TableEntry& entry : sequence.kv.tables[group].entries) {
        entry.id = taken_[group][static_cast<size_t>(entry.id)];
        cache_.AddReference(group, entry.id);
      }
    }
  }
}

Status SessionReader::GetNote(std::string* note) {
  uint32_t size = 0;
  KVANT_TRY(in_.GetCount("bytes of the note", 1, &size));
  note->resize(size);
  KVANT_TRY(in_.GetBytes(note->data(), size));
  return in_.End("note");
}

Result<LoadedSession> SessionReader::Read() {
  Counts counts;
  KVANT_TRY(CheckHeader(&counts));
  wanted_.resize(static_cast<size_t>(cache_.groups()));
  taken_.resize(static_cast<size_t>(cache_.groups()));
  LoadedSession session;
  for (uint32_t i = 0; i < counts.sources; ++i) {
    KVANT_TRY(GetSource(&session.sources.emplace_back()));
  }
  for (uint32_t i = 0; i < counts.row_blocks; ++i) {
    KVANT_TRY(GetRowBlock(&session.row_blocks.emplace_back()));
  }
  for (uint32_t i = 0; i < counts.sequences; ++i) {
    LoadedSequence& sequence = session.sequences.emplace_back();
    sequence.kv = cache_.NewSequence();
    KVANT_TRY(GetSequence(&sequence));
  }
  Status status = GetBlocks();
  for (size_t i = 0; i < session.sources.size() && counts.source_rows == 1 && status.ok(); ++i) {
    status = GetSourceRows(positions_[i], &session.sources[i]);
  }
  if (status.ok() && in_.left() > 0) status = GetNote(&session.note);
  if (status.ok() && in_.left() > 0) {
    status = in_.Corrupt(fmt::format("expected its end, found {} more bytes", in_.left()));
  }
  if (status.ok()) Connect(session.sequences);
  for (const GroupId group : cache_.group_ids()) {
    for (const BlockId block : taken_[group]) cache_.Release(group, block);
  }
  if (status.ok()) return session;
  for (LoadedSource& source : session.sources) {
    if (source.rows.has_value()) cache_.FreeSource(*source.rows);
  }
  return status.error();
}

Result<LoadedSession> ReadSessionFile(const std::string& path, const SessionModel& model,
                                      const SourceCheck& check_source, Cache& cache) {
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  KVANT_ASSIGN(LoadedSession session,
               SessionReader(file.bytes(), path, model, check_source, cache).Read());
  cache.Settle();
  const Status stored = cache.status();
  if (stored.ok()) return session;
  FreeLoaded(session, cache);
  return stored.error();
}

void FreeLoaded(LoadedSession& session, Cache& cache) {
  for (LoadedSequence& sequence : session.sequences) cache.Free(sequence.kv);
  for (LoadedSource& source : session.sources) {
    if (source.rows.has_value()) cache.FreeSource(*source.rows);
    source.rows.reset();
  }
}

}  // namespace kvant::kv
