#include "engine/evaluate/windows.h"

#include <algorithm>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/result.h"

namespace kvant::evaluate {
namespace {

// A strided window is half a stride longer than asked, in whole multiples of llama.cpp's padding
// of contexts.
constexpr int64_t kStridedSizeTile = 32;

}  // namespace

Result<Windows> Windows::Cut(std::vector<TokenId> tokens, const SpecialTokens& special,
                             const WindowOptions& options) {
  if (options.size < 4 || options.stride < 0 || options.stride >= options.size) {
    return MakeError(ErrorCode::kInvalid,
                     "expected windows of at least 4 tokens and a stride below that, found {} "
                     "and {}",
                     options.size, options.stride);
  }
  const int64_t total = static_cast<int64_t>(tokens.size());
  const bool strided = options.stride > 0;
  const int64_t size =
      strided ? static_cast<int64_t>(RoundUp(static_cast<size_t>(options.size + options.stride / 2),
                                             kStridedSizeTile))
              : options.size;
  if (total < 2 * size) {
    return MakeError(ErrorCode::kInvalid,
                     "the text has {}, expected at least {}: two windows of {}",
                     Counted(total, "token"), 2 * size, size);
  }
  Windows windows = Whole(std::move(tokens), special, size);
  if (strided) {
    windows.bos_.reset();
    windows.stride_ = options.stride;
    windows.count_ = (total - size + options.stride - 1) / options.stride;
    windows.rows_ = options.stride;
    windows.first_row_ = size - 1 - options.stride;
  }
  windows.count_ = std::min(windows.count_, options.count_max.value_or(windows.count_));
  return windows;
}

Windows Windows::Whole(std::vector<TokenId> tokens, const SpecialTokens& special, int64_t size) {
  Windows windows;
  windows.size_ = size;
  windows.stride_ = size;
  windows.count_ = static_cast<int64_t>(tokens.size()) / size;
  windows.first_row_ = size / 2;
  windows.rows_ = size - 1 - windows.first_row_;
  if (special.add_bos) windows.bos_ = special.bos;
  windows.tokens_ = std::move(tokens);
  return windows;
}

std::vector<TokenId> Windows::Tokens(int64_t window) const {
  KVANT_CHECK(window >= 0 && window < count_);
  const auto begin = tokens_.begin() + window * stride_;
  std::vector<TokenId> out(begin, begin + size_);
  if (bos_.has_value()) out[0] = *bos_;
  return out;
}

}  // namespace kvant::evaluate
