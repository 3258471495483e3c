// Finds where a prompt may be cut without changing a bit of its logits
// (include/kvant/sequence_host.h).
#include <algorithm>

#include "base/result.h"
#include "kvant/sequence_host.h"

namespace kvant {

void SequenceHost::RunApart(size_t count, const std::function<void(size_t i)>& task) {
  for (size_t i = 0; i < count; ++i) task(i);
}

Result<SequenceId> SequenceHost::NewSequenceOf(std::span<const TokenId> /*source*/) {
  return MakeError(ErrorCode::kInvalid, "a source: there is no encoder");
}

Result<SequenceId> SequenceHost::NewSequenceOfFrames(std::span<const float> /*frames*/) {
  return MakeError(ErrorCode::kInvalid, "frames: there is no encoder");
}

Result<std::span<const TokenId>> SequenceHost::Predict(SequenceId /*sequence*/, TokenId /*next*/,
                                                       int64_t /*count*/) {
  return std::span<const TokenId>();
}

Status SequenceHost::SetAdapters(SequenceId /*sequence*/, std::span<const AdapterUse> uses) {
  if (uses.empty()) return {};
  return MakeError(ErrorCode::kNotSupported, "adapters: there are none");
}

int64_t PromptCut::Next(int64_t total, int64_t done, int64_t limit) const {
  // The chunk that the next token belongs to when the prompt is alone.
  const int64_t chunk_end = std::min(total, done - done % chunk + chunk);
  const int64_t chunk_begin = done - done % chunk;
  const int64_t left = chunk_end - done;
  const int64_t shortest = few_rows + 1;  // the least tokens of a piece of a long chunk
  if (chunk_end - chunk_begin < shortest) return std::min(left, std::max<int64_t>(limit, 1));
  const int64_t piece = std::min(left, std::max(limit, shortest));
  const int64_t rest = left - piece;
  if (rest == 0 || rest >= shortest) return piece;
  return left - shortest >= shortest ? left - shortest : left;
}

}  // namespace kvant
