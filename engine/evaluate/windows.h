// A text cut into windows, the way perplexities are published: each window starts the model afresh,
// and only tokens that have enough text before them are scored.
//
// Plain windows: [0, size), [size, 2 size) ... of the tokens; the second half of each is scored:
// rows size / 2 to size - 2, each of which predicts the next token of its window. Strided windows
// begin every `stride` tokens and score their last `stride` tokens, so that every scored token has
// nearly a whole window before it. Where the vocabulary asks for BOS, it takes the place of the
// first token of every plain window; strided windows have none. All as in llama-perplexity of early
// 2025, so results are comparable with its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kvant/session.h"

namespace kvant::evaluate {

struct WindowOptions {
  int64_t size = 512;                     // tokens of a window
  int64_t stride = 0;                     // 0: plain windows
  std::optional<int64_t> count_max = {};  // windows at most
};

class Windows {
 public:
  // kInvalid if the text is too short: fewer than two windows.
  static Result<Windows> Cut(std::vector<TokenId> tokens, const SpecialTokens& special,
                             const WindowOptions& options);

  // All plain windows of `size` >= 4 tokens; possibly none.
  static Windows Whole(std::vector<TokenId> tokens, const SpecialTokens& special, int64_t size);

  int64_t size() const { return size_; }
  int64_t count() const { return count_; }
  bool strided() const { return stride_ != size_; }
  std::span<const TokenId> tokens() const { return tokens_; }

  // Rows [first_row, first_row + rows) of each window are scored.
  int64_t first_row() const { return first_row_; }
  int64_t rows() const { return rows_; }

  // The tokens of a window as the model sees them, [size].
  std::vector<TokenId> Tokens(int64_t window) const;

  // The token that row first_row + row of a window predicts.
  TokenId Target(int64_t window, int64_t row) const {
    return tokens_[static_cast<size_t>(window * stride_ + first_row_ + row + 1)];
  }

 private:
  std::vector<TokenId> tokens_;
  std::optional<TokenId> bos_;
  int64_t size_ = 0;
  int64_t stride_ = 0;
  int64_t count_ = 0;
  int64_t first_row_ = 0;
  int64_t rows_ = 0;
};

// Called after each window; an error ends the work and is returned.
using WindowProgress = std::function<Status(int64_t windows_done)>;

}  // namespace kvant::evaluate
