// Makes the plan of a model from its ModelSpec and the file's tensors: calls AddNodes of every
// sublayer, stack by stack and layer by layer. It knows no family and no kind of sublayer.
#pragma once

#include <memory>

#include "base/result.h"
#include "cpu/float_gemm.h"
#include "engine/arch/spec.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"
#include "kvant/pooling.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {
class AdapterSet;
class MatMulObserver;
}  // namespace kvant::graph

namespace kvant::arch {

// Looks every tensor up by name, checks type and shape, and builds the plan. The plan points into
// the file's mapping and into the kernel table, which must outlive it. kCorrupt names the tensor,
// the shape expected and the shape found. An observer is asked about every matrix product and must
// outlive the plan; null means none. Products get the additions of `adapters`, which must outlive
// the plan; null means none.
Result<std::unique_ptr<graph::Plan>> BuildPlan(const formats::GgufFile& file,
                                               const cpu::KernelTable& kernels,
                                               const cpu::FloatGemm& float_gemm,
                                               const ModelSpec& spec,
                                               graph::MatMulObserver* observer = nullptr,
                                               graph::AdapterSet* adapters = nullptr);

// The plan of a model without a decoder has no values and no nodes.
//
// Builds the plan that encodes a source, graph::kEncodePlan, for a model with an encoder. It has
// the cache layers of the plan above, under the numbers that they have there, and the encoder's
// cache layer.
Result<std::unique_ptr<graph::Plan>> BuildEncodePlan(const formats::GgufFile& file,
                                                     const cpu::KernelTable& kernels,
                                                     const cpu::FloatGemm& float_gemm,
                                                     const ModelSpec& spec,
                                                     const graph::Plan& decode,
                                                     graph::MatMulObserver* observer = nullptr);

// Builds the plan that makes rows of texts and vectors or logits of these, graph::kEmbedPlan, for
// any model that reads tokens. For Pooling::kRank the file has a classifier (HasClassifier).
Result<std::unique_ptr<graph::Plan>> BuildEmbedPlan(const formats::GgufFile& file,
                                                    const cpu::KernelTable& kernels,
                                                    const cpu::FloatGemm& float_gemm,
                                                    const ModelSpec& spec, Pooling pooling,
                                                    graph::MatMulObserver* observer = nullptr);

}  // namespace kvant::arch
