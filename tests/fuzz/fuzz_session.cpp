// Fuzzes session files with right hashes: each must be refused in one clean line, without a trace
// in the cache, or give sequences that hold under everything that is done to sequences.
//
// The input is a byte that chooses a cache, a byte with the number of operations, two bytes for
// each of them, and the file, whose sections are sealed here.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <xxhash.h>

#include "base/result.h"
#include "cpu/kernels/attention.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/pass_view.h"
#include "engine/kv/policies/fixed.h"
#include "engine/kv/session_file.h"
#include "engine/kv/session_reader.h"
#include "tests/engine/kv/session_fields.h"

namespace {

using namespace kvant;
using namespace kvant::kv;

// The fingerprint of make_session_seeds.py.
constexpr uint64_t kFingerprint = 7;
constexpr int64_t kVocab = 5;
constexpr int64_t kRowDim = 2;
constexpr SessionModel kModel = {kFingerprint, kVocab, kRowDim};
constexpr int64_t kContext = 400;
constexpr int64_t kChunk = 16;
constexpr int64_t kSequences = 4;
constexpr int64_t kSource = 70;

void Require(bool promise) {
  if (!promise) __builtin_trap();
}

Cache MakeCache(uint8_t kind) {
  CacheOptions options;
  options.context = kContext;
  options.chunk = kChunk;
  options.sequences = kSequences;
  options.poison = true;
  if (kind % 3 == 2) {
    options.source = kSource;
    options.groups = {{0, 1, 2, 2, KvType::kF16, KvType::kF16, {0}},
                      {0, 1, 2, 2, KvType::kQ8, KvType::kQ8, {1}}};
    options.groups[1].policy = Fixed::kName;
    options.groups[1].source = kSource;
  } else if (kind % 3 == 0) {
    options.groups = {{0, 1, 2, 2, KvType::kF16, KvType::kF16, {0}},
                      {5, 1, 4, 3, KvType::kQ8, KvType::kQ8, {1}}};
  } else {
    options.groups = {{40, 2, 2, 1, KvType::kF32, KvType::kQ8, {0}}};
  }
  auto cache = Cache::Create(options);
  Require(cache.ok());
  return std::move(*cache);
}

// Answers as an encoder of tokens would.
Result<int64_t> CheckSource(SourceKind kind, std::span<const std::byte> input) {
  const auto count = static_cast<int64_t>(input.size() / sizeof(TokenId));
  if (kind == SourceKind::kTokens && count > 0 && count <= kSource) return count;
  return Error(ErrorCode::kInvalid, "the encoder does not read that");
}

class Program {
 public:
  explicit Program(uint8_t kind)
      : cache_(MakeCache(kind)),
        view_(cache_, 1, kChunk),
        runs_(static_cast<size_t>(PassView::RunsMax(kContext, 1))),
        path_(
            (std::filesystem::temp_directory_path() / ("fuzz_session." + std::to_string(getpid())))
                .string()) {}

  void Run(const uint8_t* operations, size_t count, const std::string& file) {
    const SourceCheck check = CheckSource;
    auto loaded =
        SessionReader(std::as_bytes(std::span(file)), "file", kModel, check, cache_).Read();
    if (!loaded.ok()) {
      Require(!loaded.error().message.empty());
      Require(loaded.error().message.find('\n') == std::string::npos);
      Require(cache_.bytes_used() == 0);
      return;
    }
    Require(loaded->sequences.size() <= kSequences);
    Take(*loaded);
    while (sequences_.size() < kSequences) sequences_.emplace_back().kv = cache_.NewSequence();
    Check();
    for (size_t i = 0; i < count; ++i) Operation(operations[2 * i], operations[2 * i + 1]);
    for (LoadedSequence& sequence : sequences_) Grow(sequence, 1, true);
    for (LoadedSequence& sequence : sequences_) cache_.Free(sequence.kv);
    Require(cache_.bytes_used() == 0);
  }

 private:
  // Sequences refer to the rows of their sources; what the file does not have is encoded.
  void Take(LoadedSession& loaded) {
    for (LoadedSource& source : loaded.sources) {
      if (source.rows.has_value()) continue;
      auto rows = cache_.NewSource(static_cast<int64_t>(source.input.size() / sizeof(TokenId)));
      Require(rows.ok());
      cache_.EndEncoding(*rows);
      source.rows = std::move(*rows);
    }
    for (LoadedSequence& sequence : loaded.sequences) {
      if (sequence.source == 0) continue;
      cache_.ShareSource(sequence.kv, *loaded.sources[sequence.source - 1].rows);
    }
    for (LoadedSource& source : loaded.sources) cache_.FreeSource(*source.rows);
    row_blocks_ = std::move(loaded.row_blocks);
    sources_ = std::move(loaded.sources);
    sequences_ = std::move(loaded.sequences);
  }

  void Operation(uint8_t code, uint8_t number) {
    LoadedSequence& sequence = sequences_[code % kSequences];
    LoadedSequence& other = sequences_[number % kSequences];
    const int64_t length = sequence.kv.length;
    switch (code / kSequences % 8) {
      case 0: Grow(sequence, 1 + number % kChunk, true); break;
      case 1: Grow(sequence, 1 + number % kChunk, false); break;
      case 2: Rewind(sequence, length - std::min<int64_t>(length, number)); break;
      case 3: Rewind(sequence, length * number / 255); break;
      case 4:
        if (&sequence == &other) break;
        cache_.Free(other.kv);
        cache_.Fork(sequence.kv, other.kv);
        other.tokens = sequence.tokens;
        other.given_by_tokens = sequence.given_by_tokens;
        other.source = sequence.source;
        break;
      case 5:
        Require(cache_.Prune(sequence.kv, length * (number % 16) / 32, length * (number / 16) / 15)
                    .ok() ||
                length * (number % 16) / 32 > length * (number / 16) / 15);
        sequence.given_by_tokens = sequence.given_by_tokens && sequence.kv.pruned.empty();
        break;
      case 6: SaveAndLoad(); break;
      default: Rewind(sequence, 0); break;
    }
    Check();
  }

  void Grow(LoadedSequence& sequence, int64_t tokens, bool commit) {
    tokens = std::min(tokens, kContext - sequence.kv.length);
    const Growth growth{&sequence.kv, tokens};
    if (cache_.source() > 0 && sequence.source == 0) return;
    if (tokens == 0 || !cache_.CheckRoom({&growth, 1}, kChunk).ok()) return;
    Require(cache_.Reserve(sequence.kv, tokens).ok());
    cache_.RunCopies(0, 1);
    cache_.FinishCopies();
    const PartRows part{&sequence.kv, 0, tokens};
    view_.Set({&part, 1});
    for (int layer = 0; layer < static_cast<int>(cache_.groups()); ++layer)
      Touch(layer, sequence.kv);
    if (!commit) return cache_.Rollback(sequence.kv);
    cache_.Commit(sequence.kv);
    sequence.tokens.resize(static_cast<size_t>(sequence.kv.length), 1);
  }

  // Writes new rows and reads all that they see.
  void Touch(int layer, const Sequence& sequence) {
    const GroupShape& shape = view_.shape(layer);
    const kv::GroupId group = cache_.group_of_layer(layer);
    const bool of_source = cache_.policy(group).holds() == Holds::kSource;
    const int64_t seen =
        of_source ? sequence.tables[group].length : sequence.length + sequence.reserved;
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int64_t i = 0; i < sequence.reserved && !of_source; ++i) {
        const int64_t position = sequence.length + i;
        const TableEntry* entry = EntryAt(sequence.tables[group], position);
        Require(entry != nullptr);
        const std::array<std::byte, 4 * sizeof(float)> row{std::byte{1}};
        const float scale = 1.0f;
        WriteKeyRow(cache_, {layer, head}, *entry, position, row.data(), &scale);
        WriteValueRow(cache_, {layer, head}, *entry, position, row.data(), &scale);
      }
      const PassView::Work& work = view_.work(layer)[0];
      int64_t end = 0;
      for (const cpu::KvRun& run : view_.Runs(layer, head, work, runs_)) {
        Require(run.first_position >= end && run.count > 0);
        end = run.first_position + run.count;
        Require(end <= seen);
        for (int64_t tile = 0; tile < run.count; tile += cpu::kKeyTileTokens) {
          asm volatile(""
                       :
                       : "r"(run.keys[static_cast<size_t>(tile / cpu::kKeyTileTokens) *
                                      cpu::KvKeyTileBytes(shape.k_type, shape.k_dim)]));
        }
      }
      Require(end == seen);
    }
  }

  void Rewind(LoadedSequence& sequence, int64_t length) {
    if (!cache_.Rewind(sequence.kv, length).ok()) return;
    sequence.tokens.resize(static_cast<size_t>(length));
    if (length == 0) sequence.given_by_tokens = true;
  }

  // A saved file is accepted, and holds what was saved.
  void SaveAndLoad() {
    std::vector<SavedSequence> saved;
    std::vector<SavedSource> sources;
    for (const LoadedSequence& sequence : sequences_) {
      saved.push_back({&sequence.kv, sequence.tokens, {}, sequence.given_by_tokens, 0});
      if (sequence.source == 0) continue;
      const LoadedSource& source = sources_[sequence.source - 1];
      sources.push_back({source.kind, source.input,
                         XXH64(source.input.data(), source.input.size(), 0), &sequence.kv});
      saved.back().source = static_cast<uint32_t>(sources.size());
    }
    const std::vector<std::span<const float>> blocks(row_blocks_.begin(), row_blocks_.end());
    const SavedSession session = {sources, rows_ = !rows_, saved, blocks};
    Require(WriteSessionFile(path_, kModel, cache_, session).ok());
    const uint64_t used = cache_.bytes_used();
    for (LoadedSequence& sequence : sequences_) cache_.Free(sequence.kv);
    auto loaded = ReadSessionFile(path_, kModel, CheckSource, cache_);
    std::filesystem::remove(path_);
    Require(loaded.ok() && loaded->sequences.size() == sequences_.size());
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const int64_t length = loaded->sequences[i].kv.length;
      Require(length == sequences_[i].kv.length || sequences_[i].kv.length == 0);
    }
    Take(*loaded);
    // Each sequence has a source of its own now.
    Require(cache_.source() > 0 ? cache_.bytes_used() >= used : cache_.bytes_used() == used);
  }

  void Check() {
    std::vector<const Sequence*> all;
    for (const LoadedSequence& sequence : sequences_) all.push_back(&sequence.kv);
    Require(cache_.Check(all, [](kv::GroupId, BlockId) { return 0; }).ok());
  }

  Cache cache_;
  PassView view_;
  std::vector<cpu::KvRun> runs_;
  std::string path_;
  std::vector<std::vector<float>> row_blocks_;
  std::vector<LoadedSource> sources_;
  std::vector<LoadedSequence> sequences_;
  bool rows_ = true;  // the next file has the rows of sources
};

std::string SealedFile(uint8_t kind, const std::string& bytes) {
  // The second group of the third cache holds sources.
  return test::SessionFields(bytes, kVocab, kind % 3 == 2 ? 2u : 0u, kRowDim).bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t operations = std::min<size_t>(data[1], (size - 2) / 2);
  const uint8_t* file = data + 2 + 2 * operations;
  const std::string bytes(reinterpret_cast<const char*>(file), data + size - file);
  Program(data[0]).Run(data + 2, operations, SealedFile(data[0], bytes));
  return 0;
}
