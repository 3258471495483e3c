// Reads from a session file what its sequences were given beside tokens: sources and row blocks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/result.h"
#include "engine/kv/session_reader.h"

namespace kvant::kv {

// ---- Sources ------------------------------------------------------------------------------------

Status SessionReader::GetSource(LoadedSource* source) {
  uint8_t kind = 0;
  int64_t positions = 0;
  uint64_t size = 0;
  uint64_t hash = 0;
  const std::byte* input = nullptr;
  KVANT_TRY(in_.Get(&kind));
  if (kind != static_cast<uint8_t>(SourceKind::kTokens) &&
      kind != static_cast<uint8_t>(SourceKind::kFrames)) {
    return in_.Corrupt(fmt::format("source: expected kind 1 or 2, found {}", kind));
  }
  source->kind = static_cast<SourceKind>(kind);
  KVANT_TRY(in_.Get(&positions));
  KVANT_TRY(in_.Get(&size));
  if (size > in_.left() || size % sizeof(float) != 0) {
    return in_.Corrupt(
        fmt::format("source: expected an input of at most {} bytes, a multiple of {}, found {}",
                    in_.left(), sizeof(float), size));
  }
  KVANT_TRY(in_.GetSpan(size, &input));
  KVANT_TRY(in_.Get(&hash));
  KVANT_TRY(in_.End("source"));
  source->input.assign(input, input + size);
  if (hash != XXH64(input, size, 0)) {
    return in_.Corrupt(fmt::format("source: expected the hash {:016x} of its input, found {:016x}",
                                   XXH64(input, size, 0), hash));
  }
  const auto made = check_source_(source->kind, source->input);
  if (!made.ok()) return in_.Corrupt(made.error().message);
  if (*made != positions) {
    return in_.Corrupt(
        fmt::format("source: expected the {} positions of its input, found {}", *made, positions));
  }
  positions_.push_back(positions);
  return {};
}

// Blocks are taken from the cache here, after all tables have been checked.
Status SessionReader::GetSourceRows(int64_t positions, LoadedSource* source) {
  KVANT_ASSIGN(Source rows, cache_.NewSource(positions));
  cache_.EndEncoding(rows);
  source->rows = std::move(rows);
  for (const GroupId group : cache_.group_ids()) {
    for (const TableEntry& entry : source->rows->tables[group].entries) {
      const int64_t left = positions - entry.number * kBlockTokens;
      KVANT_TRY(GetBlock(group, entry.id, std::min(left, kBlockTokens)));
    }
  }
  return {};
}

// A sequence with tokens has a source: what it holds depends on it.
Status SessionReader::GetSourceNumber(LoadedSequence* sequence) {
  if (!HasSources(cache_)) return {};
  KVANT_TRY(in_.Get(&sequence->source));
  const uint32_t least = sequence->kv.length > 0 ? 1 : 0;
  if (sequence->source >= least && sequence->source <= positions_.size()) return {};
  return in_.Corrupt(fmt::format("source of {} tokens: expected a number from {} to {}, found {}",
                                 sequence->kv.length, least, positions_.size(), sequence->source));
}

// ---- Row blocks ---------------------------------------------------------------------------------

Status SessionReader::GetRowBlock(std::vector<float>* rows) {
  const int64_t dim = model_.row_dim;
  const int64_t ids_left = std::numeric_limits<TokenId>::max() - ids_end_;
  const int64_t bytes_left = static_cast<int64_t>(in_.left() / sizeof(float)) / dim;
  int64_t count = 0;
  KVANT_TRY(in_.Get(&count));
  if (count < 1 || count > std::min(ids_left, bytes_left)) {
    return in_.Corrupt(fmt::format("row block: expected 1 to {} rows, found {}",
                                   std::min(ids_left, bytes_left), count));
  }
  const std::byte* bytes = nullptr;
  rows->resize(static_cast<size_t>(count * dim));
  KVANT_TRY(in_.GetSpan(rows->size() * sizeof(float), &bytes));
  std::memcpy(rows->data(), bytes, rows->size() * sizeof(float));
  KVANT_TRY(in_.End("row block"));
  ids_end_ += count;
  const auto wrong = std::ranges::find_if(*rows, [](float one) { return !std::isfinite(one); });
  if (wrong == rows->end()) return {};
  return in_.Corrupt(fmt::format("row block: row {}: expected finite numbers, found {}",
                                 (wrong - rows->begin()) / dim, *wrong));
}

}  // namespace kvant::kv
