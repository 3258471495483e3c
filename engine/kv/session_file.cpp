// Writing and checking session files.
#include "engine/kv/session_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <type_traits>

#include <xxhash.h>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "engine/kv/kv_rows.h"

namespace kvant::kv {
namespace {

static_assert(std::endian::native == std::endian::little,
              "session files are written as they lie in memory");

constexpr std::array<char, 8> kMagic = {'k', 'v', 'a', 'n', 't', 's', 'e', 's'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kSequencesMax = 4096;  // as SessionOptions::sequences
constexpr uint8_t kHasLogits = 1;
constexpr uint8_t kPlain = 2;

// ---- Sections -----------------------------------------------------------------------------------

// Collects a section's bytes and writes them with their hash.
class SectionWriter {
 public:
  explicit SectionWriter(OutputFile& file) : file_(file) {}

  template <class T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    PutBytes(&value, sizeof value);
  }
  void PutBytes(const void* data, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  Status End() {
    const uint64_t hash = XXH64(bytes_.data(), bytes_.size(), 0);
    KVANT_TRY(file_.Write(bytes_));
    KVANT_TRY(file_.Write(&hash, sizeof hash));
    bytes_.clear();
    return {};
  }

 private:
  OutputFile& file_;
  std::vector<std::byte> bytes_;
};

// Reads a section's values, never beyond the file; End compares the hash.
class SectionReader {
 public:
  explicit SectionReader(const MappedFile& file) : file_(file) {}

  const std::string& path() const { return file_.path(); }

  template <class T>
  Status Get(T* value) {
    return GetBytes(value, sizeof *value);
  }
  Status GetBytes(void* data, size_t size) {
    KVANT_TRY(Need(size));
    std::memcpy(data, file_.bytes().data() + at_, size);
    at_ += size;
    return {};
  }
  // The next bytes where they lie in the file.
  Status GetSpan(size_t size, const std::byte** data) {
    KVANT_TRY(Need(size));
    *data = file_.bytes().data() + at_;
    at_ += size;
    return {};
  }
  // A count of things that take at least `bytes_each` each, so that it is bounded by the file.
  Status GetCount(const char* what, size_t bytes_each, uint32_t* count) {
    KVANT_TRY(Get(count));
    if (*count > (file_.bytes().size() - at_) / bytes_each) {
      return Corrupt(fmt::format("{} {} do not fit the file", *count, what));
    }
    return {};
  }
  Status End(const char* section) {
    const uint64_t expected = XXH64(file_.bytes().data() + begin_, at_ - begin_, 0);
    uint64_t hash = 0;
    KVANT_TRY(Get(&hash));
    if (hash != expected) return Corrupt(fmt::format("the {} is damaged", section));
    begin_ = at_;
    return {};
  }
  bool AtEnd() const { return at_ == file_.bytes().size(); }
  Error Corrupt(const std::string& reason) const {
    return MakeError(ErrorCode::kCorrupt, "{}: session file: {}", file_.path(), reason);
  }

 private:
  Status Need(size_t size) const {
    if (size <= file_.bytes().size() - at_) return {};
    return Corrupt(fmt::format("ends at byte {}, {} more are expected", file_.bytes().size(),
                               size - (file_.bytes().size() - at_)));
  }

  const MappedFile& file_;
  size_t begin_ = 0;
  size_t at_ = 0;
};

// ---- Rows of a block ----------------------------------------------------------------------------

using ReadRow = void (*)(const Cache&, Lane, const TableEntry&, int64_t, std::byte*, float*);
using WriteRow = void (*)(const Cache&, Lane, const TableEntry&, int64_t, const std::byte*, float);

void PutRows(SectionWriter& out, const Cache& cache, Lane lane, BlockId block, uint32_t rows,
             cpu::KvElement type, int dim, ReadRow read) {
  const size_t bytes = cpu::KvElementBytes(type) * static_cast<size_t>(dim);
  std::vector<std::byte> elements(bytes);
  std::vector<float> scales;
  for (uint32_t row = 0; row < rows; ++row) {
    float scale = 0.0f;
    read(cache, lane, {0, block}, row, elements.data(), &scale);
    out.PutBytes(elements.data(), bytes);
    scales.push_back(scale);
  }
  if (type == cpu::KvElement::kQ8) out.PutBytes(scales.data(), rows * sizeof(float));
}

void PutBlock(SectionWriter& out, const Cache& cache, int group, BlockId block, uint32_t rows) {
  const GroupShape& shape = cache.shape(group);
  out.Put(rows);
  for (const int layer : shape.layers) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const Lane lane{layer, head};
      PutRows(out, cache, lane, block, rows, shape.k_type, shape.k_dim, ReadKeyRow);
      PutRows(out, cache, lane, block, rows, shape.v_type, shape.v_dim, ReadValueRow);
    }
  }
}

Status GetRows(SectionReader& in, Cache& cache, Lane lane, BlockId block, uint32_t rows,
               cpu::KvElement type, int dim, WriteRow write) {
  const size_t bytes = cpu::KvElementBytes(type) * static_cast<size_t>(dim);
  const std::byte* elements = nullptr;
  const std::byte* scales = nullptr;
  KVANT_TRY(in.GetSpan(rows * bytes, &elements));
  const bool q8 = type == cpu::KvElement::kQ8;
  if (q8) KVANT_TRY(in.GetSpan(rows * sizeof(float), &scales));
  for (uint32_t row = 0; row < rows; ++row) {
    float scale = 0.0f;
    if (q8) std::memcpy(&scale, scales + row * sizeof(float), sizeof scale);
    write(cache, lane, {0, block}, row, elements + row * bytes, scale);
  }
  return {};
}

Status GetBlock(SectionReader& in, Cache& cache, int group, BlockId block, uint32_t* row_count) {
  const GroupShape& shape = cache.shape(group);
  KVANT_TRY(in.Get(row_count));
  const uint32_t rows = *row_count;
  if (rows > kBlockTokens) return in.Corrupt(fmt::format("a block of {} rows", rows));
  for (const int layer : shape.layers) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const Lane lane{layer, head};
      KVANT_TRY(GetRows(in, cache, lane, block, rows, shape.k_type, shape.k_dim, WriteKeyRow));
      KVANT_TRY(GetRows(in, cache, lane, block, rows, shape.v_type, shape.v_dim, WriteValueRow));
    }
  }
  return {};
}

// ---- Header -------------------------------------------------------------------------------------

void PutShape(SectionWriter& out, const GroupShape& shape) {
  out.Put<int64_t>(shape.window);
  for (const int value :
       {shape.kv_heads, shape.k_dim, shape.v_dim, static_cast<int>(shape.k_type),
        static_cast<int>(shape.v_type), static_cast<int>(shape.rotate_keys),
        static_cast<int>(shape.rotate_values), static_cast<int>(shape.layers.size())}) {
    out.Put<int32_t>(value);
  }
  for (const int layer : shape.layers) out.Put<int32_t>(layer);
}

Status PutHeader(OutputFile& file, uint64_t fingerprint, const Cache& cache, size_t sequences) {
  SectionWriter out(file);
  out.PutBytes(kMagic.data(), kMagic.size());
  out.Put(kVersion);
  out.Put(static_cast<uint32_t>(cache.groups()));
  out.Put(fingerprint);
  for (int group = 0; group < cache.groups(); ++group) PutShape(out, cache.shape(group));
  out.Put(static_cast<uint32_t>(sequences));
  return out.End();
}

// The header must be the one that this cache would write.
Status CheckHeader(SectionReader& in, const std::string& path, uint64_t fingerprint,
                   const Cache& cache, uint32_t* sequences) {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t groups = 0;
  uint64_t model = 0;
  KVANT_TRY(in.GetBytes(magic.data(), magic.size()));
  if (magic != kMagic) return in.Corrupt("it does not begin like one");
  KVANT_TRY(in.Get(&version));
  if (version != kVersion) {
    return MakeError(ErrorCode::kNotSupported, "{}: session file: expected version {}, found {}",
                     path, kVersion, version);
  }
  KVANT_TRY(in.Get(&groups));
  KVANT_TRY(in.Get(&model));
  if (model != fingerprint) {
    return MakeError(ErrorCode::kNotSupported, "{}: session file: saved with another model", path);
  }
  if (groups != static_cast<uint32_t>(cache.groups())) {
    return in.Corrupt(fmt::format("expected {} groups, found {}", cache.groups(), groups));
  }
  for (int group = 0; group < cache.groups(); ++group) {
    const GroupShape& shape = cache.shape(group);
    int64_t window = 0;
    KVANT_TRY(in.Get(&window));
    std::array<int32_t, 8> found{};
    KVANT_TRY(in.GetBytes(found.data(), sizeof found));
    const std::array<int32_t, 8> expected = {shape.kv_heads,
                                             shape.k_dim,
                                             shape.v_dim,
                                             static_cast<int32_t>(shape.k_type),
                                             static_cast<int32_t>(shape.v_type),
                                             shape.rotate_keys,
                                             shape.rotate_values,
                                             static_cast<int32_t>(shape.layers.size())};
    if (window != shape.window || found != expected) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: session file: saved with other types or windows of the KV cache", path);
    }
    for (const int layer : shape.layers) {
      int32_t saved = 0;
      KVANT_TRY(in.Get(&saved));
      if (saved != layer) return in.Corrupt(fmt::format("layer {} where {} is", saved, layer));
    }
  }
  KVANT_TRY(in.Get(sequences));
  if (*sequences > kSequencesMax) {
    return in.Corrupt(
        fmt::format("expected at most {} sequences, found {}", kSequencesMax, *sequences));
  }
  return in.End("header");
}

// ---- Sequences ----------------------------------------------------------------------------------

// Blocks of a group in the order of their first mention, with the rows that a table fills.
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

void PutSequence(SectionWriter& out, const SavedSequence& sequence,
                 std::vector<SavedBlocks>& blocks) {
  const Sequence& kv = *sequence.kv;
  out.Put(kv.length);
  out.Put(static_cast<uint8_t>((sequence.logits.empty() ? 0 : kHasLogits) |
                               (sequence.plain ? kPlain : 0)));
  out.Put(static_cast<uint32_t>(kv.pruned.size()));
  for (const PositionRange& range : kv.pruned) {
    out.Put(range.begin);
    out.Put(range.end);
  }
  out.PutBytes(sequence.tokens.data(), sequence.tokens.size_bytes());
  out.PutBytes(sequence.logits.data(), sequence.logits.size_bytes());
  for (size_t group = 0; group < blocks.size(); ++group) {
    const BlockTable& table = kv.tables[group];
    out.Put(table.first_position);
    out.Put(static_cast<uint32_t>(table.entries.size()));
    for (const TableEntry& entry : table.entries) {
      out.Put(entry.number);
      out.Put(blocks[group].Add(entry.id, kv.length - entry.number * kBlockTokens));
    }
  }
}

// A sequence whose table entries hold indices of the file's blocks.
Status GetSequence(SectionReader& in, const Cache& cache, int64_t vocab, LoadedSequence* sequence) {
  Sequence& kv = sequence->kv;
  uint8_t flags = 0;
  uint32_t ranges = 0;
  KVANT_TRY(in.Get(&kv.length));
  if (kv.length < 0) return in.Corrupt(fmt::format("a sequence of {} tokens", kv.length));
  if (kv.length > cache.context()) {
    return MakeError(ErrorCode::kContextFull,
                     "{}: session file: {} saved tokens do not fit the context of {}", in.path(),
                     kv.length, cache.context());
  }
  KVANT_TRY(in.Get(&flags));
  KVANT_TRY(in.GetCount("pruned ranges", 2 * sizeof(int64_t), &ranges));
  int64_t last = -1;
  for (uint32_t i = 0; i < ranges; ++i) {
    PositionRange range{};
    KVANT_TRY(in.Get(&range.begin));
    KVANT_TRY(in.Get(&range.end));
    if (range.begin <= last || range.end <= range.begin || range.end > kv.length) {
      return in.Corrupt(fmt::format("pruned positions [{}, {})", range.begin, range.end));
    }
    last = range.end;
    kv.pruned.push_back(range);
  }
  sequence->plain = (flags & kPlain) != 0;
  const std::byte* tokens = nullptr;
  const size_t count = static_cast<size_t>(kv.length);
  KVANT_TRY(in.GetSpan(count * sizeof(TokenId), &tokens));
  sequence->tokens.resize(count);
  if (count > 0) std::memcpy(sequence->tokens.data(), tokens, count * sizeof(TokenId));
  for (const TokenId id : sequence->tokens) {
    if (id < 0 || id >= vocab) return in.Corrupt(fmt::format("a token with the id {}", id));
  }
  if ((flags & kHasLogits) != 0) {
    const std::byte* logits = nullptr;
    KVANT_TRY(in.GetSpan(static_cast<size_t>(vocab) * sizeof(float), &logits));
    sequence->logits.resize(static_cast<size_t>(vocab));
    std::memcpy(sequence->logits.data(), logits, sequence->logits.size() * sizeof(float));
  }
  for (BlockTable& table : kv.tables) {
    uint32_t entries = 0;
    KVANT_TRY(in.Get(&table.first_position));
    KVANT_TRY(in.GetCount("blocks", sizeof(int64_t) + sizeof(uint32_t), &entries));
    int64_t next = table.first_block();
    for (uint32_t i = 0; i < entries; ++i) {
      int64_t number = 0;
      uint32_t index = 0;
      KVANT_TRY(in.Get(&number));
      KVANT_TRY(in.Get(&index));
      if (number < next || number * kBlockTokens >= kv.length || index > INT32_MAX) {
        return in.Corrupt(fmt::format("block {} of a sequence of {} tokens", number, kv.length));
      }
      next = number + 1;
      table.entries.push_back({number, static_cast<BlockId>(index)});
    }
    if (table.first_position < 0) return in.Corrupt("a table that begins before position 0");
  }
  return {};
}

}  // namespace

Status WriteSessionFile(const std::string& path, uint64_t fingerprint, const Cache& cache,
                        std::span<const SavedSequence> sequences) {
  KVANT_ASSIGN(OutputFile file, OutputFile::Create(path));
  KVANT_TRY(PutHeader(file, fingerprint, cache, sequences.size()));
  std::vector<SavedBlocks> blocks(static_cast<size_t>(cache.groups()));
  SectionWriter out(file);
  for (const SavedSequence& sequence : sequences) {
    PutSequence(out, sequence, blocks);
    KVANT_TRY(out.End());
  }
  for (size_t group = 0; group < blocks.size(); ++group) {
    const SavedBlocks& saved = blocks[group];
    out.Put(static_cast<uint32_t>(saved.ids.size()));
    KVANT_TRY(out.End());
    for (size_t i = 0; i < saved.ids.size(); ++i) {
      PutBlock(out, cache, static_cast<int>(group), saved.ids[i], saved.rows[i]);
      KVANT_TRY(out.End());
    }
  }
  return file.Commit();
}

namespace {

// Fills new blocks from the file and gives the sequences references to them.
Status GetBlocks(SectionReader& in, Cache& cache, std::vector<LoadedSequence>& sequences,
                 std::vector<std::vector<BlockId>>& taken) {
  for (int group = 0; group < cache.groups(); ++group) {
    std::vector<BlockId>& ids = taken[static_cast<size_t>(group)];
    std::vector<uint32_t> rows;
    uint32_t count = 0;
    KVANT_TRY(in.GetCount("blocks", sizeof(uint32_t), &count));
    KVANT_TRY(in.End("list of blocks"));
    for (uint32_t i = 0; i < count; ++i) {
      KVANT_ASSIGN(const BlockId block,
                   cache.TakeBlock(group, ids.empty() ? kNoBlock : ids.back()));
      ids.push_back(block);
      rows.push_back(0);
      KVANT_TRY(GetBlock(in, cache, group, block, &rows.back()));
      KVANT_TRY(in.End("cache"));
    }
    for (LoadedSequence& sequence : sequences) {
      for (const TableEntry& entry : sequence.kv.tables[static_cast<size_t>(group)].entries) {
        const size_t index = static_cast<size_t>(entry.id);
        const int64_t filled = sequence.kv.length - entry.number * kBlockTokens;
        if (index >= ids.size() || rows[index] < std::min(filled, kBlockTokens)) {
          return in.Corrupt(fmt::format("block {} of {}", index, ids.size()));
        }
      }
    }
  }
  return in.AtEnd() ? Status() : in.Corrupt("there are bytes after its end");
}

}  // namespace

Result<std::vector<LoadedSequence>> ReadSessionFile(const std::string& path, uint64_t fingerprint,
                                                    int64_t vocab, Cache& cache) {
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  SectionReader in(file);
  uint32_t count = 0;
  KVANT_TRY(CheckHeader(in, path, fingerprint, cache, &count));
  std::vector<LoadedSequence> sequences;
  for (uint32_t i = 0; i < count; ++i) {
    LoadedSequence& sequence = sequences.emplace_back();
    sequence.kv = cache.NewSequence();
    KVANT_TRY(GetSequence(in, cache, vocab, &sequence));
    KVANT_TRY(in.End("sequence"));
    KVANT_TRY(cache.CheckTables(sequence.kv));
  }
  std::vector<std::vector<BlockId>> taken(static_cast<size_t>(cache.groups()));
  const Status status = GetBlocks(in, cache, sequences, taken);
  // Tables take references of their own; those of the taken blocks go.
  for (int group = 0; group < cache.groups(); ++group) {
    const std::vector<BlockId>& ids = taken[static_cast<size_t>(group)];
    if (status.ok()) {
      for (LoadedSequence& sequence : sequences) {
        for (TableEntry& entry : sequence.kv.tables[static_cast<size_t>(group)].entries) {
          entry.id = ids[static_cast<size_t>(entry.id)];
          cache.AddReference(group, entry.id);
        }
      }
    }
    for (const BlockId block : ids) cache.Release(group, block);
  }
  if (!status.ok()) return status.error();
  return sequences;
}

}  // namespace kvant::kv
