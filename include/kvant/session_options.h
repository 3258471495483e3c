// The options of a session or a runner.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvant/kv_type.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/thread_placement.h"

namespace kvant {

// A pass of at most this many rows uses one arithmetic, whatever sequences they belong to, so that
// each row has the bits that it has alone. More rows, of one prompt, use another, faster
// arithmetic.
inline constexpr int64_t kSharedRowsMax = 63;

// The most rows of a pass; longer inputs are cut into chunks of this size.
inline constexpr int64_t kDefaultChunk = 512;

// Earlier states that a sequence of a recurrent model keeps at most. Their distances double from 32
// tokens on: eight reach back by some 8,000.
inline constexpr int64_t kDefaultStateCheckpoints = 8;
inline constexpr int64_t kStateCheckpointsMax = 4096;
// Tokens that a log of states holds at most.
inline constexpr int64_t kStateLogMax = 4096;

// The parts that a device computes, where there is one; the CPU computes all others.
enum class Offload : uint8_t {
  kNone,
  kAttention,  // attention over the cache
};

// Where keys and values of offloaded layers lie.
enum class KvDevice : uint8_t {
  kAuto,  // in the device's memory; layers for which it has no room stay with the CPU
  kCuda,  // in the device's memory, all of them
  kCpu,   // in the host's memory, which the device reads across the bus
};

struct SessionOptions {
  int64_t context = 0;  // positions that a sequence may hold; 0 = the model's training length
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  // 0 = the performance cores, or the CPUs that `placement` leaves; one thread for passes too small
  // to share.
  int threads = 0;
  ThreadPlacement placement = {};
  int64_t chunk = kDefaultChunk;
  // false: every step computes the whole sequence again, as a reference, and the source of an
  // encoder-decoder; takes no KV memory.
  bool kv_cache = true;
  // Read between the phases of every pass; once it is set, passes end with kCancelled. A step may
  // have a flag of its own, too.
  const std::atomic<bool>* cancel = nullptr;

  // For encoder-decoders: the types of the keys and values that the decoder's layers make of a
  // source, where they differ from k_type and v_type.
  std::optional<KvType> source_k_type = {};
  std::optional<KvType> source_v_type = {};

  // How many sequences may exist at the same time; the cache has room for all when they share
  // nothing. Encoder-decoders may have as many sources.
  int64_t sequences = 1;
  uint64_t kv_bytes_max = 0;  // most bytes of cache blocks in use; 0 = what `sequences` may need
  bool kv_commit = false;     // touch all of the cache's memory at creation
  bool kv_rotation = true;    // rotate int8 keys and values, see cpu::KernelTable::rotate
  bool kv_check = false;      // test the cache's invariants after every operation
  bool kv_poison = false;     // fill freed blocks with NaN
  // Keep full blocks after their sequences end, until memory is needed, and use them for prompts
  // that begin with the same tokens. Kept blocks have the bits of the passes that made them.
  // Without `strict` a pass of at most kSharedRowsMax rows gives other bits than a pass of more
  // rows, so that logits may depend on what was kept.
  bool prefix_cache = false;
  // Most bytes of blocks and states that the prefix cache refers to, those that running sequences
  // use included; the least recently used are given up before more are kept. A prompt longer than
  // fits keeps its beginning. 0: nothing is kept.
  uint64_t prefix_bytes_max = UINT64_MAX;
  // For models with recurrent layers: kF32, or kF16 for half the bytes of what scans keep. F16 is
  // rounded after every token, so the bits still depend on nothing but the tokens, but errors feed
  // back. Convolutions and token shifts keep F32 in any case.
  KvType state_type = KvType::kF32;
  // For models with recurrent layers: how many earlier states of a sequence are kept at most, so
  // that a rewind, and a prompt with a known beginning, need not compute all tokens again. States
  // are given up where memory is needed for sequences. 0: a rewind computes all tokens again.
  int64_t state_checkpoints = kDefaultStateCheckpoints;
  // For models with recurrent layers: how many of a sequence's last tokens have their contributions
  // to the states kept in a log, at most kStateLogMax. A rewind to one of these tokens then needs
  // no replay, if a state before it is kept that the log reaches back to. Drafts leave such a
  // state, prompts one at their last block border, at which they are cut, and answers one at each
  // border. With a log of N tokens the last N - 31 can be taken back without a replay, while these
  // states are kept (state_checkpoints is not 0, memory suffices) and the sequence has not been
  // forked since. 0: nothing is kept.
  int64_t state_log = 0;
  // Limit passes to kSharedRowsMax rows, so that prefill and decode give equal bits.
  bool strict = false;

  // A first device of NVIDIA's driver computes attention over the tokens of a sequence; its numbers
  // differ from the CPU's by the rounding of queries and weights to halves. Keys and values are of
  // type f16 or q8 then. After an error of the device every step of the runner fails.
  Offload offload = Offload::kNone;
  KvDevice kv_device = KvDevice::kAuto;
  // The layers to offload, by the number of their attention in the model, from 0; empty: all that
  // can be.
  std::vector<int> offload_layers = {};
};

// Returns the options with every default filled in. kInvalid for impossible numbers.
Result<SessionOptions> ResolveOptions(const Model& model, SessionOptions options);

}  // namespace kvant
