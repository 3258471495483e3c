#include "formats/model_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "base/result.h"

namespace kvant::formats {
namespace {

// Both hashes are fed in pieces that stay in the processor's cache between the two.
constexpr uint64_t kPieceBytes = uint64_t{1} << 18;

struct FreeState {
  void operator()(XXH64_state_t* state) const { XXH64_freeState(state); }
};
using State = std::unique_ptr<XXH64_state_t, FreeState>;

}  // namespace

Result<uint64_t> HashModel(const GgufFile& file, const TensorHashFunction& on_tensor) {
  const State model(XXH64_createState());
  const State tensor_state(XXH64_createState());
  if (model == nullptr || tensor_state == nullptr) {
    return MakeError(ErrorCode::kOutOfMemory, "no memory for a hash state");
  }
  XXH64_reset(model.get(), 0);
  for (const GgufTensor& tensor : file.tensors()) {
    XXH64_reset(tensor_state.get(), 0);
    for (uint64_t at = 0; at < tensor.size_bytes; at += kPieceBytes) {
      const uint64_t count = std::min(kPieceBytes, tensor.size_bytes - at);
      XXH64_update(tensor_state.get(), tensor.data + at, count);
      XXH64_update(model.get(), tensor.data + at, count);
    }
    KVANT_TRY(on_tensor(tensor, XXH64_digest(tensor_state.get())));
  }
  return XXH64_digest(model.get());
}

std::string HashHex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace kvant::formats
