// The operations of latent attention (DeepSeek-V2, arXiv 2405.04434). The cache keeps one row for
// all heads of a position: a latent c, from which a matrix for each head makes keys and values, and
// a rotated part that all keys share. As a cache layer c is the position's value and the rotated
// part its key (cpu::KeyForm::kValueFirst), so c is stored once.
//
// There are two forms, equal in exact arithmetic:
//   absorbed   q' = Wk^T q_nope; score = q' . c + q_pe . k_pe; out = Wv (sum of weight * c).
//              Heads are query heads of one kv head.
//   expanded   k = [Wk c, k_pe] and v = Wv c of every visible position; then heads one by one.
// A pass has one of them, for all its rows: FormOf.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cpu/float_gemm.h"
#include "cpu/kernels/rope.h"
#include "engine/graph/attention/attention_nodes.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rope.h"
#include "engine/graph/work.h"
#include "formats/gguf.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

class MatMulObserver;

// The form with fewer multiplications (bench/results/shapes.md has their times), for rows of one
// sequence at the positions [end - rows, end). The absorbed form multiplies each row with the
// matrices of the heads, and longer vectors with every position that a row sees; the expanded form
// multiplies every visible position with the matrices. Passes of few tokens are always absorbed, so
// that a row's bits do not depend on its company. Passes whose latents are a device's are always
// absorbed, too.
LatentForm FormOf(const LatentShape& shape, int64_t rows, int64_t end);
LatentForm FormOf(const LatentShape& shape, const PassContext& pass);
LatentForm FormOf(const LatentShape& shape, const PassShape& pass, const PassShape::Part& part);

// A matrix for each head: `rows` adjacent rows of a tensor, for head 0 from row `first` on, and
// `stride` rows from one head to the next.
struct HeadMatrices {
  const formats::GgufTensor* tensor = nullptr;
  int64_t first = 0;
  int64_t stride = 0;
  int64_t rows = 0;

  int64_t cols() const { return tensor->dims[0]; }
  const std::byte* Of(int64_t head) const;
};

// A row of heads: vectors of a value, `stride` columns apart from column `first` on.
struct HeadColumns {
  ValueId value = kNoValue;
  int64_t first = 0;
  int64_t stride = 0;
};

// Rotates, where there are cosines and sines, what is to be rotated of queries [heads][nope + rope]
// and of the rows [c, k_pe] from column kv.first on, and multiplies queries by their temperature,
// in place; stores the row in the cache layer; and prepares the absorbed form: copies the rotated
// parts into `absorbed`, whose vectors are [q', q_pe], and writes the parts that are not rotated as
// records into `nope_records`, [heads] for each row, where that is a value.
struct LatentStore {
  LatentShape shape;
  int cache_id = 0;
  cpu::RopeStyle rope_style = cpu::RopeStyle::kInterleaved;
  ValueId cos_sin = kNoValue;  // kNoValue: nothing is rotated
  HeadColumns queries;
  HeadColumns kv;
  HeadColumns absorbed;
  ValueId nope_records = kNoValue;
  QueryTemperature temperature = {};
};
std::unique_ptr<Node> MakeLatentStore(const cpu::KernelTable& kernels, const LatentStore& store);

// Hands what each head's matrix is multiplied with, `cols` columns of every head, to the observer.
std::unique_ptr<Node> MakeObserveHeads(MatMulObserver& observer, std::string name,
                                       const HeadColumns& in, int64_t heads, int64_t cols,
                                       int observed);

// Multiplies heads in passes that have the absorbed form: out of each head = its matrix . in of the
// head. The input is read as `records`, [heads] for each row, where the matrices multiply int8,
// else as floats.
std::unique_ptr<Node> MakeHeadMatMul(const cpu::KernelTable& kernels,
                                     const cpu::FloatGemm& float_gemm, std::string name,
                                     const LatentShape& shape, const HeadMatrices& matrices,
                                     const HeadColumns& in, ValueId records,
                                     const HeadColumns& out);

// The indexer whose choice rows see, and that choice.
struct ChosenBy {
  std::optional<IndexShape> index = {};
  ValueId choice = kNoValue;
};

// Attends in passes that have the absorbed form: out = the weighted latents of each head,
// [heads][latent] floats, and `records`, [heads] for each row, where that is a value. `kv` holds
// the rows of a pass without cache.
std::unique_ptr<Node> MakeAbsorbedAttention(const cpu::KernelTable& kernels, int cache_id,
                                            const LatentShape& shape, float scale, ValueId absorbed,
                                            const HeadColumns& kv, ValueId out, ValueId records,
                                            const ChosenBy& chosen = {});

// Attends in passes that have the expanded form: out = the attention of queries [heads][nope +
// rope], [heads][v_dim].
std::unique_ptr<Node> MakeExpandedAttention(const cpu::KernelTable& kernels,
                                            const cpu::FloatGemm& float_gemm, int cache_id,
                                            const LatentShape& shape, float scale,
                                            const HeadMatrices& keys, const HeadMatrices& values,
                                            const HeadColumns& queries, ValueId out);

}  // namespace kvant::graph
