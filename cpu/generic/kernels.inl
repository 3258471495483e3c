// All generic kernels but matrix products and codecs, each after those it needs. Included inside an
// instruction set's namespace and target region, after its simd.inl.

// clang-format off
#include "cpu/generic/math.inl"
#include "cpu/generic/activations.inl"
#include "cpu/generic/quantize_vector.inl"
#include "cpu/generic/kv_store.inl"
#include "cpu/generic/attention_tile.inl"
#include "cpu/generic/attention_merge.inl"
#include "cpu/generic/attention_codes.inl"
#include "cpu/generic/attention_softmax.inl"
#include "cpu/generic/attention_spans.inl"
#include "cpu/generic/attention_q8.inl"
#include "cpu/generic/attention_latent.inl"
#include "cpu/generic/attention.inl"
#include "cpu/generic/index_scores.inl"
#include "cpu/generic/rows.inl"
#include "cpu/generic/recurrence.inl"
#include "cpu/generic/selective_scan.inl"
#include "cpu/generic/portable_rows.inl"
// clang-format on
