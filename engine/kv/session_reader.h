// Loads a session file. Its hashes guard against accidents only, so every number is checked before
// it is used, as if an enemy had written it. The tables decide which blocks the file must hold and
// how many rows each has; blocks are taken from the cache only after all tables are checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv/session_file.h"
#include "engine/kv/session_sections.h"

namespace kvant::kv {

class SessionReader {
 public:
  // `path` names the file in messages.
  SessionReader(std::span<const std::byte> bytes, const std::string& path,
                const SessionModel& model, const SourceCheck& check_source, Cache& cache)
      : in_(bytes, path),
        model_(model),
        check_source_(check_source),
        cache_(cache),
        ids_end_(model.vocab) {}

  Result<LoadedSession> Read();

 private:
  // A block that the file must hold, because tables refer to it.
  struct FileBlock {
    int64_t number;  // the same in all tables
    int64_t rows;
  };

  struct Counts {
    uint32_t sequences = 0;
    uint32_t sources = 0;
    uint8_t source_rows = 0;
    uint32_t row_blocks = 0;
  };

  Status CheckHeader(Counts* counts);
  Status CheckVersion(uint32_t version) const;
  Status GetCounts(uint32_t version, Counts* counts);
  Status CheckShape(GroupId group);
  Status GetSequence(LoadedSequence* sequence);
  Status GetPruned(Sequence* kv);
  Status GetTokens(int64_t length, std::vector<TokenId>* tokens);
  Status GetTable(GroupId group, const LoadedSequence& sequence, BlockTable* table);
  Status GetStates(GroupId group, int64_t length, BlockTable* table);
  Status GetEntry(GroupId group, int64_t number, int64_t rows, BlockTable* table);
  Status GetSource(LoadedSource* source);
  Status GetSourceNumber(LoadedSequence* sequence);
  Status GetRowBlock(std::vector<float>* rows);
  Status GetNote(std::string* note);
  Status GetBlocks();
  Status GetSourceRows(int64_t positions, LoadedSource* source);
  Status GetBlock(GroupId group, BlockId block, int64_t rows);
  void Connect(std::vector<LoadedSequence>& sequences);

  SectionReader in_;
  SessionModel model_;
  const SourceCheck& check_source_;
  Cache& cache_;
  int64_t ids_end_;                                   // ids of tokens and of rows are below it
  IdVector<GroupId, std::vector<FileBlock>> wanted_;  // in the order of the file
  IdVector<GroupId, std::vector<BlockId>> taken_;     // for as many of them
  std::vector<int64_t> positions_;                    // of each source
};

}  // namespace kvant::kv
