// Files that hold what a model answered to a text, for other models to be compared with: its tokens
// and, for every scored row of every plain window, the whole distribution.
//
//   magic[8], int32 window size, int32 vocab, int32 windows, int32 tokens [windows][size],
//   rows [windows][size - 1 - size / 2]
//
// Two kinds of rows, told apart by the magic:
//   "_logits_"  as llama-perplexity --kl-divergence-base writes and reads them: float scale, float
//               offset, uint16 codes [vocab rounded up to even]; ln p = scale * code + offset. Half
//               the size, but in steps of up to 1/4096 nat, so that a single row's divergence is
//               uncertain by about 1e-4 nats, and cut off 16 nats under the likeliest token: where
//               the text holds tokens that are less likely, the base perplexity comes out too low.
//   "_kvlogit"  float32 logits [vocab]: exact, so that a model's divergence from itself is 0 and
//               types that lose almost nothing can be told apart.
//
// Errors (kCorrupt, kIo, kInvalid) name the file. Thread-safety: a LogitFile is const after Open;
// EncodeRow and Row may be called from several threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "engine/evaluate/windows.h"

namespace kvant::evaluate {

enum class LogitRows : uint8_t {
  kFloat32,  // exact
  kUint16,   // llama.cpp's
};

class LogitFile {
 public:
  static Result<LogitFile> Open(const std::string& path);

  int64_t window_size() const { return window_size_; }
  int64_t vocab() const { return vocab_; }
  int64_t windows() const { return windows_; }
  int64_t rows_per_window() const { return window_size_ - 1 - window_size_ / 2; }
  std::span<const TokenId> tokens() const { return tokens_; }  // [windows * window_size]

  // ln p of what such a row holds is uncertain where it is at most this.
  double floor() const;

  // A row's distribution. `buffer` holds the values and must live as long as the result.
  Distribution Row(int64_t window, int64_t row, std::vector<float>& buffer) const;

 private:
  Status ReadHeader(const std::string& path);

  MappedFile mapping_;
  LogitRows row_kind_{};
  int64_t window_size_ = 0;
  int64_t vocab_ = 0;
  int64_t windows_ = 0;
  std::vector<TokenId> tokens_;
  const std::byte* rows_ = nullptr;
};

// Create, then SetRow for every row of a window and FinishWindow, for every window, then Finish.
// The file appears whole or not at all.
class LogitFileWriter {
 public:
  // kInvalid for strided windows, which such a file cannot describe.
  static Result<LogitFileWriter> Create(const std::string& path, const Windows& windows,
                                        int64_t vocab, LogitRows rows);

  // May be called from several threads, for different rows.
  void SetRow(int64_t row, const Distribution& distribution);
  Status FinishWindow();
  Status Finish();

 private:
  LogitRows row_kind_{};
  size_t row_bytes_ = 0;
  std::vector<std::byte> rows_;  // of one window
  OutputFile file_;
};

}  // namespace kvant::evaluate
