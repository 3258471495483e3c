// The head that turns the rows of a text into a vector or into logits, for models of any family:
//
//   pooled = the mean of the rows, the first row or the last one
//   vector = dense_3 . f(dense_2 . pooled), where the file has these matrices
//   logits = cls.output . norm(f(cls . pooled)), or cls . pooled in files without cls.output
//
// With classifier.reads_rows the logits are cls.output . (the pooled f(cls . row)).
//
// Keys: pooling_type, classifier.pooling_type, attention.causal, dense_2_activation and
// dense_3_activation (a key of kvant's: "identity", where it is absent, or "tanh"). Three more are
// kvant's own: classifier.hidden_act names f where it is not the family's, classifier.reads_rows is
// true or absent, and max_sequence_length is the number of tokens that vectors are made of, at
// most, where it is less than the context.
//
// Tensors: dense_2, dense_3, cls, cls.norm, cls.output, each with an optional bias. Their shapes
// say the sizes.
#pragma once

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"
#include "engine/graph/builder.h"
#include "engine/graph/plan.h"
#include "kvant/pooling.h"

namespace kvant::arch {

// Reads the keys. A decoder whose positions see those after them, or whose rows are pooled, becomes
// an embedder. kNotSupported where such a decoder has parts that cannot be one.
Status ReadEmbedding(const Metadata& metadata, ModelSpec& spec);

// Whether the file has a classifier.
bool HasClassifier(const formats::GgufFile& file);

// Appends what pools the rows of `rows`, [dim] columns, in the stage of the head, and the matrices
// behind it. The plan's logits are the result: a vector, or logits for Pooling::kRank. Pooling is
// not kNone.
Status AddEmbeddingHead(const ModelSpec& spec, Pooling pooling, graph::ValueId rows, int64_t dim,
                        graph::PlanBuilder& builder);

}  // namespace kvant::arch
