// Row blocks: rows of an image or of sound that sequences have in place of embeddings of tokens.
//
// A row has an id as a token has one, behind the ids of the vocabulary. So sequences, prefixes and
// files remember rows in their lists of tokens. Ids count upwards and are never given to another
// content; a block that is still here gives its ids to equal content again. A block lives while
// somebody holds it: a caller (Add, Hold), or a position of a sequence, a snapshot or the prefix
// index (AddReferences). Thread-safety: none; it belongs to the thread that runs the passes.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kvant/token_id.h"

namespace kvant::kv {

class RowBlocks {
 public:
  // `vocab`: tokens of the model, so the first id of a row. `dim`: floats of a row; 0: the model
  // takes no rows. `ids_end`: ids are below it.
  RowBlocks(TokenId vocab, int64_t dim, TokenId ids_end = std::numeric_limits<TokenId>::max())
      : next_(vocab), vocab_(vocab), dim_(dim), ids_end_(ids_end) {}

  // Holds a block, [rows][dim], and returns the id of its first row; ids of rows follow each other.
  // kInvalid for a number of floats that makes no rows and for one that is NaN or infinite;
  // kNotSupported where the model takes no rows; kOutOfMemory where no ids are left.
  Result<TokenId> Add(std::span<const float> rows);
  // Gives back what Add holds. kInvalid where no block that Add holds begins with this id.
  Status Free(TokenId first);

  // Without blocks a list of tokens names none, and the calls below have nothing to do.
  bool empty() const { return blocks_.empty(); }
  int64_t dim() const { return dim_; }
  int64_t count() const { return std::ssize(blocks_); }

  // The floats of a row, [dim]; null for an id of the vocabulary and for one that no block has.
  const float* Find(TokenId id) const;
  // The whole block of a row.
  struct Block {
    TokenId first;
    std::span<const float> rows;  // [count][dim]
  };
  // The id must be one of a block.
  Block BlockOf(TokenId id) const;

  // Counts each position of these tokens as a reference to its block, if it has one; Release takes
  // that back.
  void AddReferences(std::span<const TokenId> tokens);
  void Release(std::span<const TokenId> tokens);
  // Holds the blocks of these tokens for a while, like a caller; LetGo takes that back.
  void Hold(std::span<const TokenId> tokens);
  void LetGo(std::span<const TokenId> tokens);

  // kCorrupt where a block has not as many references as these lists of tokens give it.
  Status Check(std::span<const std::span<const TokenId>> lists) const;

 private:
  struct Held {
    TokenId first = 0;
    std::vector<float> rows;
    uint64_t hash = 0;
    int64_t holders = 0;     // calls of Add, and steps under way
    int64_t references = 0;  // positions of sequences, snapshots and prefixes
  };

  Held* HeldOf(TokenId id) const;
  // Adds `change` to a count of each block for each of its ids among the tokens.
  void Count(std::span<const TokenId> tokens, int64_t Held::*count, int64_t change);
  void DropUnheld();

  std::vector<std::unique_ptr<Held>> blocks_;  // by ascending ids
  TokenId next_;                               // the id of the next new row
  TokenId vocab_;
  int64_t dim_;
  TokenId ids_end_;
};

}  // namespace kvant::kv
