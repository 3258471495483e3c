// Loading a session file. Its hashes guard against accidents only: every number is checked as if an
// enemy had written it, before anything follows from it. What the tables say decides which blocks
// the file must hold and how many rows each, so no block is taken for a file that is wrong there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv/session_file.h"
#include "engine/kv/session_sections.h"

namespace kvant::kv {

class SessionReader {
 public:
  // `path` is what messages call the file.
  SessionReader(std::span<const std::byte> bytes, const std::string& path, uint64_t fingerprint,
                int64_t vocab, Cache& cache)
      : in_(bytes, path), fingerprint_(fingerprint), vocab_(vocab), cache_(cache) {}

  Result<std::vector<LoadedSequence>> Read();

 private:
  // A block of the file as its tables want it.
  struct FileBlock {
    int64_t number;  // the same in all tables
    int64_t rows;
  };

  Status CheckHeader(uint32_t* sequences);
  Status CheckShape(int group);
  Status GetSequence(LoadedSequence* sequence);
  Status GetPruned(Sequence* kv);
  Status GetTokens(int64_t length, std::vector<TokenId>* tokens);
  Status GetTable(int group, const LoadedSequence& sequence, BlockTable* table);
  Status GetBlocks();
  Status GetBlock(int group, BlockId block, int64_t rows);
  void Connect(std::vector<LoadedSequence>& sequences);

  SectionReader in_;
  uint64_t fingerprint_;
  int64_t vocab_;
  Cache& cache_;
  std::vector<std::vector<FileBlock>> wanted_;  // by group, in the order of the file
  std::vector<std::vector<BlockId>> taken_;     // by group, for as many of them
};

}  // namespace kvant::kv
