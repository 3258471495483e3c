// Any number of token sequences on a model, in one KV cache: append, decode in batches, fork,
// reorder (beams), rewind, prune, snapshot.
//
// Sequences that were forked share the blocks of the tokens that they have in common; only the
// block that one of them writes into is copied. A step takes new tokens of several sequences at
// once, without padding, in one or more passes, each of which reads the weights once. Every row
// gets the bits that it would get alone: rows of different sequences share only passes of at most
// kSharedRowsMax rows, which have one arithmetic.
//
// A pass is all or nothing, and so is every operation but a step of several passes: one that fails
// leaves the sequences as they were. A step that is refused, for a wrong token, a full context or
// too little memory, changes nothing either; one that is cancelled keeps the passes that were
// complete (see Step).
//
// Errors: kInvalid for a sequence, snapshot or token that does not exist, kContextFull beyond the
// context, kOutOfMemory with the bytes that are needed and free, kNotSupported for what these
// options cannot do, kCancelled. Thread-safety: one thread at a time; only the cancel flags may be
// set by others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/kv_tensors.h"
#include "kvant/memory_plan.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/sequence_host.h"
#include "kvant/session_options.h"

namespace kvant {

namespace run {
struct Engine;
}

using SnapshotId = int;
using SourceId = int;

struct SourceOptions {
  // Read between the phases of the pass; once it is set, it ends with kCancelled.
  const std::atomic<bool>* cancel = nullptr;
  // Called with the encoder's output, [positions][dim], which is valid only during the call; the
  // encoder runs even if the source is known. An error ends the encoding and is returned.
  std::function<Status(std::span<const float> rows)> rows = {};
};

// Whether a session file has the keys and values of sources, or only the tokens or frames that the
// sources were made from.
enum class SourceRows : uint8_t { kSaved, kLeftOut };

// The ids of a block's rows: `first` and the ids behind it.
struct RowIds {
  TokenId first = 0;
  int64_t count = 0;
};

struct SaveOptions {
  SourceRows source_rows = SourceRows::kSaved;
  std::string note = {};  // a text that the file keeps, and Load returns
};

// Counters of one group: the cache layers with one policy, shape and format. A block has 32
// positions.
struct KvGroupStats {
  int layers = 0;
  int64_t window = 0;            // 0 = all positions
  uint64_t bytes_per_token = 0;  // of all its layers
  uint64_t block_bytes = 0;
  int64_t blocks_capacity = 0;   // blocks that address space is reserved for
  int64_t blocks_committed = 0;  // blocks whose memory was used at some time
  int64_t blocks_used = 0;
  int64_t blocks_shared = 0;    // of those used: referred to more than once
  int64_t blocks_private = 0;   // of those used: referred to once, by a sequence
  int64_t blocks_kept = 0;      // of those used: referred to by snapshots and the prefix cache only
  int64_t rows = 0;             // sum of the positions that each sequence holds
  uint64_t blocks_dropped = 0;  // given up behind the window since creation
};

struct RunnerStats {
  uint64_t kv_bytes_used = 0;       // blocks in use, each counted once
  uint64_t kv_bytes_peak = 0;       // the largest kv_bytes_used since creation
  uint64_t kv_bytes_committed = 0;  // blocks whose memory was used at some time
  uint64_t kv_bytes_capacity = 0;   // reserved address space
  uint64_t prefix_bytes = 0;        // blocks in use that the prefix cache refers to
  uint64_t kv_bytes_written = 0;    // rows that passes stored
  uint64_t kv_bytes_copied = 0;     // by copies on write
  uint64_t kv_blocks_taken = 0;
  uint64_t kv_blocks_copied = 0;
  uint64_t rewinds = 0;
  uint64_t replays = 0;
  uint64_t tokens_processed = 0;  // rows of all passes, replays included
  uint64_t tokens_replayed = 0;
  uint64_t tokens_scanned = 0;  // by rewinds, from logs of states (SessionOptions::state_log)
  uint64_t tokens_reused = 0;   // found in the prefix cache
  uint64_t passes = 0;          // times the weights were read
  uint64_t encoder_passes = 0;  // sources that were encoded
  int64_t sequences = 0;        // alive
  int64_t snapshots = 0;
  // The figures of an offload (SessionOptions::offload): layers that a device attends for, bytes
  // over the bus, attentions of few rows, how many of them were one launch of a recorded graph, and
  // attentions of many rows.
  int64_t offloaded_layers = 0;
  uint64_t bytes_to_device = 0;
  uint64_t bytes_to_host = 0;
  uint64_t device_calls_few = 0;
  uint64_t device_calls_replayed = 0;
  uint64_t device_calls_many = 0;
  // The figures of a placement on several nodes (ThreadPlacement::numa): pages of weights, and how
  // many of them lie on the node where they are read.
  uint64_t weight_pages = 0;
  uint64_t weight_pages_placed = 0;
  std::vector<KvGroupStats> groups;
};

class Runner final : public SequenceHost {
 public:
  static Result<std::unique_ptr<Runner>> Create(std::shared_ptr<const Model> model,
                                                const SessionOptions& options);
  ~Runner() override;

  // ---- Sequences ----

  // Creates an empty sequence. kOutOfMemory if there are SessionOptions::sequences already;
  // kNotSupported for a model without a decoder.
  Result<SequenceId> NewSequence() override;
  Status FreeSequence(SequenceId sequence) override;
  // Sets the adapters that an empty sequence uses, and the forks of it: numbers of
  // ModelOptions::adapters, each once. kInvalid for other numbers, for a scale that is not finite
  // and for a sequence with tokens. Session files cannot keep such a sequence (Save).
  Status SetAdapters(SequenceId sequence, std::span<const AdapterUse> uses) override;
  // Makes a sequence empty, as it was when new; it has no source and no adapters any more.
  Status Reset(SequenceId sequence);

  bool Has(SequenceId sequence) const;
  // A sequence that does not exist has length 0 and no tokens.
  int64_t length(SequenceId sequence) const override;  // the next token's position
  std::span<const TokenId> tokens(SequenceId sequence) const;
  // The logits of the last token, [vocab]. Empty before the first step, while a step is incomplete,
  // and after Rewind, Prune and Import until ComputeLogits. Valid until the sequence's next step.
  std::span<const float> logits(SequenceId sequence) const override;

  // ---- Sources ----
  //
  // An encoder-decoder reads a source before it writes. A source is immutable: its keys and values
  // are computed once, and any number of sequences refer to them, through forks, reorders, rewinds
  // and snapshots, without a copy.

  // Encodes tokens in a pass of its own, or finds the source that the same tokens gave before.
  // Every call is one more reference, which FreeSource gives back; a source without references is
  // kept until its memory is needed. kInvalid for a model without an encoder; kContextFull for more
  // tokens than the encoder reads; kOutOfMemory if SessionOptions::sequences sources are in use.
  Result<SourceId> Encode(std::span<const TokenId> tokens, const SourceOptions& options = {});
  // Encodes frames of features, [bins][frames], as Encode does tokens; there are as many as
  // Model::frame_shape says, and the encoder makes a position of every two frames. kInvalid for
  // another number of frames, for a value that is NaN or infinite, and where the encoder reads
  // tokens; Encode is kInvalid where it reads frames.
  Result<SourceId> EncodeFrames(std::span<const float> frames, const SourceOptions& options = {});
  Status FreeSource(SourceId source);
  // Creates an empty sequence of this source. A sequence of an encoder-decoder needs one before its
  // first token.
  Result<SequenceId> NewSequence(SourceId source);
  // All three: the sequence alone refers to the source afterwards.
  Result<SequenceId> NewSequenceOf(std::span<const TokenId> source) override;
  Result<SequenceId> NewSequenceOfFrames(std::span<const float> frames) override;
  // The tokens or frames that a sequence's source was made from; empty where the source was made
  // from the other, or there is no source.
  std::span<const TokenId> source_tokens(SequenceId sequence) const;
  std::span<const float> source_frames(SequenceId sequence) const;
  // Gives an empty sequence another source, and no adapters. kInvalid for one that has tokens.
  Status SetSource(SequenceId sequence, SourceId source);

  // ---- Rows ----
  //
  // Rows of an image or of sound stand in place of embeddings of tokens: they enter as they are,
  // behind the scale that a model gives its embeddings. A row's id, which is no less than
  // Model::vocab_size, may stand among the tokens of every call here but Encode, Import and Export.

  // Registers rows, [count][Model::row_dim]. Rows that are here already, bit by bit, have the ids
  // that they have; ids of rows that are gone are never given again. Every call is one more
  // reference, which FreeRows gives back; sequences, snapshots and cached prefixes with these ids
  // keep the rows, too. kInvalid for another number of floats and for one that is NaN or infinite;
  // kNotSupported where layers read ids of tokens.
  Result<RowIds> AddRows(std::span<const float> rows);
  // `first` is the first id of the rows.
  Status FreeRows(TokenId first);

  // ---- Steps ----

  // Processes new tokens of different sequences. Afterwards logits(sequence) belongs to the last
  // token of each, unless it wants none.
  //
  // The step is refused before anything is processed if one of the inputs is wrong or if together
  // they do not fit (kOutOfMemory says what would). If it is cancelled in a later pass, or ended by
  // an error of options.rows, each sequence has the tokens of the complete passes: length() tells
  // how many, and a sequence that has not all of its tokens has no logits. Appending the missing
  // tokens gives the same bits as if the step had not been interrupted.
  Status Step(std::span<const StepInput> inputs, const StepOptions& options = {}) override;
  Status Append(SequenceId sequence, std::span<const TokenId> tokens);

  // Gives an empty sequence the cached blocks of the longest known beginning of the prompt
  // (SessionOptions::prefix_cache), never of its last token, and returns how many tokens these
  // hold. Step does the same with the tokens that it is given; a caller who cuts a prompt into
  // several steps calls this first, with the whole prompt.
  Result<int64_t> ReusePrefix(SequenceId sequence, std::span<const TokenId> prompt) override;

  // Appends tokens to one sequence and calls `rows(index, count)` for tokens[first] and those after
  // it, some at a time: during the call row(i), 0 <= i < count, are the logits of tokens[index +
  // i]. An error of `rows` undoes the pass and is returned.
  using HeadRows = std::function<Status(int64_t index, int64_t count)>;
  Status AppendScoring(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
                       const HeadRows& rows);
  // Empty outside the calls of `rows`, and for i >= count.
  std::span<const float> row(int64_t i) const;

  // ---- Guesses ----

  // Guesses by the layers that ModelOptions::predictors has loaded, one after the other, and leaves
  // the sequence as it is. Returns none after a rewind by more than 62 tokens, a prune, a load or a
  // reused prefix until the next step, and where memory is full. kInvalid for a token that is none.
  Result<std::span<const TokenId>> Predict(SequenceId sequence, TokenId next,
                                           int64_t count) override;
  // The logits, [vocab], of the last guess, until the next call of Predict; empty without one.
  std::span<const float> predicted_logits() const;

  // ---- Branching ----

  // Creates a sequence with the same tokens and logits.
  Result<SequenceId> Fork(SequenceId sequence) override;

  // All i at once: sequences[i] becomes what sequences[parents[i]] was.
  Status Reorder(std::span<const SequenceId> sequences, std::span<const int> parents) override;

  // Keeps the first `length` tokens: the state is as if no more had been processed. Windows keep
  // the positions that a rewind by up to 256 tokens needs (kv::kRewindSlack). Further back the
  // state is replayed from the tokens, which is kNotSupported after a prune or an import, when the
  // tokens alone do not give the state. Recurrent layers go back to one of their checkpoints
  // (SessionOptions::state_checkpoints) and are replayed from there.
  Status Rewind(SequenceId sequence, int64_t length, Replay replay = Replay::kAllowed) override;

  // Computes the logits of the last token where there are none, by processing that token again.
  // Where a window has dropped positions that it sees, they are replayed on a copy. kInvalid for an
  // empty sequence and where the last token was pruned; kNotSupported where positions would have to
  // be replayed and tokens were pruned.
  Status ComputeLogits(SequenceId sequence);

  // Forgets all but the first `keep_first` and the last `keep_last` tokens. kNotSupported with
  // recurrent layers, whose state holds all tokens.
  Status Prune(SequenceId sequence, int64_t keep_first, int64_t keep_last,
               PrunePositions positions) override;

  // A snapshot is a state to return to; it shares the sequence's blocks. Restore keeps the snapshot
  // and may be repeated.
  Result<SnapshotId> TakeSnapshot(SequenceId sequence);
  Status Restore(SequenceId sequence, SnapshotId snapshot);
  Status DropSnapshot(SnapshotId snapshot);

  // ---- Files ----

  // Saves sequences so that a later process continues them with the same bits; blocks that they
  // share are saved once (format: engine/kv/session_file.h). The file appears whole or not at all.
  // The file has the encoder's input of a sequence's source, and the keys and values that the
  // decoder made of the source unless the options leave them out: then loading encodes the source
  // again, to the same bits.
  Status Save(const std::string& path, std::span<const SequenceId> sequences,
              const SaveOptions& options = {}) const;
  // Creates sequences, in the order in which they were saved. kCorrupt for a damaged file,
  // kNotSupported for one of another model or of other cache types; nothing is created then.
  // Sequences that shared a source share it again, with those here that have the same input.
  Result<std::vector<SequenceId>> Load(const std::string& path, std::string* note = nullptr);

  // Creates sequences that are what these are in another runner, copied in memory: tokens, cache,
  // checkpoints, sources and logits, but no log of states. Blocks that they share are shared again.
  // kInvalid for a sequence that does not exist there and where `from` is this runner;
  // kNotSupported where models, cache types or windows differ, and without a cache; kContextFull,
  // kOutOfMemory. Nothing is created then. Nobody else may use `from` during the call.
  Result<std::vector<SequenceId>> Adopt(const Runner& from, std::span<const SequenceId> ids);

  // ---- Tensors ----

  // Returns the caches of sequences, all of one length, as plain tensors. kNotSupported for
  // sequences with pruned positions or ids of rows, and where keys and values of different
  // dimensions would have to share a tensor.
  Result<KvTensors> Export(std::span<const SequenceId> sequences, KvLayout layout) const;
  // Creates sequences from tensors; they have no logits until ComputeLogits or their next step.
  // kInvalid names the tensor that is missing or misshapen; nothing is created then. Ids of rows
  // are kNotSupported.
  Result<std::vector<SequenceId>> Import(const KvTensors& tensors, KvLayout layout);

  // ---- What there is ----

  const Model& model() const;
  std::string_view name() const override;  // the model's file
  const SessionOptions& options() const;   // with defaults filled in
  int64_t context() const override { return options().context; }
  int64_t sequences_max() const override { return options().sequences; }
  PromptCut prompt_cut() const override;
  int64_t prefix_block() const override;
  BlockCounts block_counts() const override;
  int64_t free_rewind() const override;
  RunnerStats stats() const;
  // Checks the cache's invariants (see kv::Ledger::Check).
  Status Check() const;
  // Calls `sink` with a line for everything that happens to the cache from now on; an empty sink
  // ends the log. First for each layer
  //   Adding KV cache input: past_key_values.0.key shape=[batch,kv heads,0,dim]
  // and .value, with as many rows as there may be sequences; then after each step
  //   KV cache update: present.0.key shape=[batch,kv heads,positions,dim]
  // with the sequences of one length as a batch, and the positions that the layer holds; and
  //   KV event: fork sequence=0 copy=1
  // and the like for blocks taken, copied and dropped, for reorder, rewind, replay, prune,
  // snapshot, restore, free.
  using LogSink = std::function<void(std::string_view line)>;
  void SetKvLog(LogSink sink);

  // Runs the tasks on the threads of the team.
  void RunApart(size_t count, const std::function<void(size_t i)>& task) override;
  // Runs a function of (index, count) on every thread of the team.
  void RunOnTeam(const std::function<void(int index, int count)>& body);

 private:
  explicit Runner(std::unique_ptr<run::Engine> engine);
  Result<SequenceId> NewSequenceAndFree(SourceId source);

  std::unique_ptr<run::Engine> engine_;
  std::span<const std::span<const float>> shown_;  // by AppendScoring, while it calls
};

}  // namespace kvant
