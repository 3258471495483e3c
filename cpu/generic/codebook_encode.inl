// Encoders of the codebook formats: the searches of quant/search/grid_fit.inl,
// quant/search/level_fit.inl, quant/search/shifted_fit.inl, quant/search/shifted_row_fit.inl and
// quant/search/trellis_fit.inl in the vectors of the including instruction set, one block or row
// after the other.
//
// Included inside an instruction set's namespace and target region, with cpu/codec_table.h before
// it. The vectors of this file are its own: nested, they do not meet those of other searches.

namespace codebook {

constexpr int kVectorBytes = kCodebookVectorBytes;

// clang-format off
#include "quant/search/lanes.inl"
#include "quant/search/level_search.inl"
#include "quant/search/level_fit.inl"
#include "quant/search/shifted_fit.inl"
#include "quant/search/shifted_row_fit.inl"
#include "quant/search/pair_fit.inl"
#include "quant/search/trellis_search.inl"
#include "quant/search/trellis_fit.inl"
#include "quant/search/grid_search.inl"
#include "quant/search/cube_search.inl"
#include "quant/search/grid_fit.inl"
// clang-format on

template <class Format, auto kSearch>
void EncodeBlocks(const EncodeTask& task) {
  std::byte* bytes = task.blocks;
  for (int64_t row = 0; row < task.rows; ++row) {
    for (int64_t col = 0; col < task.cols; col += Format::kBlockValues) {
      typename Format::Block block{};
      Format::Pack(kSearch(task.values + row * task.cols + col,
                           task.importance == nullptr ? nullptr : task.importance + col),
                   block);
      std::memcpy(bytes, &block, sizeof(block));
      bytes += sizeof(block);
    }
  }
}

// Rows with a factor of their own.
template <class Format, auto kSearch>
void EncodeRowsOf(const EncodeTask& task) {
  std::byte* bytes = task.blocks;
  for (int64_t row = 0; row < task.rows; ++row) {
    quant::PackRow<Format>(kSearch(task.values + row * task.cols, task.importance, task.cols),
                           bytes);
    bytes += task.format->row_bytes(task.cols);
  }
}

}  // namespace codebook
