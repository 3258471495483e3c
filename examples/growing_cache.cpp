// Five steps of one token with a cache that is made at the first: keys and values grow by one
// position a step along the sequence, [batch, kv heads, positions, dim]; a reset discards them.
// Then the same tokens without a cache give the same likeliest token.
//
//   growing_cache model.gguf
#include <kvant/runner.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using kvant::TokenId;

TokenId Likeliest(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

kvant::Status Run(const char* path) {
  KVANT_ASSIGN(const auto model, kvant::Model::Open(path));
  KVANT_ASSIGN(const auto runner, kvant::Runner::Create(model, {}));
  KVANT_ASSIGN(const kvant::SequenceId past, runner->NewSequence());
  std::vector<TokenId> tokens = {1};
  for (int step = 1; step <= 5; ++step) {
    KVANT_TRY(runner->Append(past, {&tokens.back(), 1}));
    KVANT_ASSIGN(const auto cache, runner->Export({&past, 1}, kvant::KvLayout::kBhsd));
    // The last layer: where some layers have a sliding window it sees all positions.
    const std::vector<int64_t>& shape = cache.tensors.back().shape;
    std::printf("step %d: %s (%d, %d, %d, %d)\n", step, cache.tensors.back().name.c_str(),
                static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2]),
                static_cast<int>(shape[3]));
    if (shape[2] != step) {
      return kvant::Error{
          kvant::ErrorCode::kInvalid,
          "expected " + std::to_string(step) + " positions, found " + std::to_string(shape[2])};
    }
    tokens.push_back(Likeliest(runner->logits(past)));
  }
  KVANT_TRY(runner->Reset(past));

  KVANT_ASSIGN(const auto uncached, kvant::Runner::Create(model, {.kv_cache = false}));
  KVANT_ASSIGN(const kvant::SequenceId whole, uncached->NewSequence());
  KVANT_TRY(uncached->Append(whole, std::span<const TokenId>(tokens).first(5)));
  if (Likeliest(uncached->logits(whole)) == tokens.back()) return {};
  return kvant::Error{kvant::ErrorCode::kInvalid, "without a cache another token is likeliest"};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: growing_cache MODEL\n");
    return 2;
  }
  const kvant::Status status = Run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "growing_cache: %s\n", status.error().message.c_str());
  return 1;
}
