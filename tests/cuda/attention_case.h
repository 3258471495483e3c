// A random problem for the attention kernels of devices, compiled for the host, and what it should
// give: what they store is compared with the CPU's scalar kernels byte by byte, what they attend to
// with attention in double precision over the numbers that are stored, as the CPU's formats place
// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "cuda/device.h"
#include "cuda/kernels/store.h"
#include "tests/cuda/warp_block.h"

namespace kvant::cuda {

inline KvType CpuElement(Element element) {
  return element == Element::kInt8 ? KvType::kQ8 : KvType::kF16;
}

// Memory that begins at a multiple of 16, and is full of NaN.
class Bytes {
 public:
  explicit Bytes(size_t bytes) : words_(bytes / sizeof(Word) + 1) { Spoil(); }
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  void Spoil() { std::memset(words_.data(), 0xff, words_.size() * sizeof(Word)); }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };
  std::vector<Word> words_;
};

struct Shape {
  int k_dim, v_dim, kv_heads, heads_per_kv;
  Element k_type, v_type;
  int window;
  Window window_kind;
  bool cap, slopes, sinks, distances, hidden;
  bool pruned;  // of few rows, no block of the first span is left
  KeyForm key_form = KeyForm::kStored;

  int query_dim() const { return k_dim + (key_form == KeyForm::kValueFirst ? v_dim : 0); }
};

enum class Rows : uint8_t { kFew, kMany };

// Sequences that share their first blocks and attend together, or one with many rows.
class Case {
 public:
  Case(const Shape& shape, unsigned seed, Rows rows)
      : shape_(shape), many_(rows == Rows::kMany), random_(seed) {
    LayOutBlocks();
    MakeSequences();
    StoreAll();
  }

  // Compares every result with the reference.
  void Check();
  // Many rows may be taken for few, whose spans have thread blocks of their own.
  void SetMany(bool many) { many_ = many; }
  // How the warps of a thread block run on the host.
  void SetOrder(WarpOrder order) { order_ = order; }
  // The results of the rows of one part, computed in a piece of all parts or alone.
  std::vector<float> ResultsOf(size_t part, bool alone);
  size_t parts() const { return parts_.size(); }
  // Attends on a device from now on; null: on the host.
  void SetDevice(Device* device) { device_ = device; }
  // The results of the rows from `first` on, which are all that the pass has.
  std::vector<float> ResultsFrom(int first) const;
  int64_t rows() const { return rows_; }
  int64_t row_floats() const { return static_cast<int64_t>(heads()) * shape_.v_dim; }

 private:
  struct Part {
    std::vector<int> blocks;
    int length;  // before its rows
    int rows;
    int first_row;
  };

  float Random(float most) { return std::uniform_real_distribution<float>(-most, most)(random_); }
  int Pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  void LayOutBlocks() {
    const auto slab = [](Element element, int dim) {
      return static_cast<uint64_t>(kBlockPositions) * static_cast<uint64_t>(dim) *
             (element == Element::kInt8 ? 1 : 2);
    };
    const auto heads = static_cast<uint64_t>(shape_.kv_heads);
    const auto scales = [&](Element element) {
      return element == Element::kInt8 ? heads * kBlockPositions * sizeof(float) : 0;
    };
    blocks_ = {};
    blocks_.keys = 64;  // what other layers have
    blocks_.values = blocks_.keys + heads * slab(shape_.k_type, shape_.k_dim);
    blocks_.key_scales = blocks_.values + heads * slab(shape_.v_type, shape_.v_dim);
    blocks_.value_scales = blocks_.key_scales + scales(shape_.k_type);
    blocks_.block_bytes = blocks_.value_scales + scales(shape_.v_type) + 32;
    blocks_.kv_heads = shape_.kv_heads;
    blocks_.k_dim = shape_.k_dim;
    blocks_.v_dim = shape_.v_dim;
    blocks_.k_type = shape_.k_type;
    blocks_.v_type = shape_.v_type;
    blocks_.key_form = shape_.key_form;
    memory_ = Bytes(blocks_.block_bytes * kBlocks);
    blocks_.memory = memory_.data();
  }

  void MakeSequences() {
    std::vector<int> free(kBlocks);
    for (int i = 0; i < kBlocks; ++i) free[static_cast<size_t>(i)] = i;
    std::shuffle(free.begin(), free.end(), random_);
    const auto take = [&free] {
      const int block = free.back();
      free.pop_back();
      return block;
    };
    constexpr int kSharedMost = 12;
    const int shared = many_ ? 0 : Pick(shape_.pruned ? kSharedMost : 0, kSharedMost);
    std::vector<int> prefix;
    for (int i = 0; i < shared; ++i) prefix.push_back(take());
    const int parts = many_ ? 1 : Pick(1, 5);
    for (int i = 0; i < parts; ++i) {
      Part part;
      part.blocks = prefix;
      part.rows = many_ ? Pick(64, 100) : Pick(1, 6);
      part.length = shared * kBlockPositions + Pick(0, 90);
      part.first_row = rows_;
      while (std::ssize(part.blocks) * kBlockPositions < part.length + part.rows) {
        part.blocks.push_back(take());
      }
      rows_ += part.rows;
      parts_.push_back(std::move(part));
    }
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (shape_.pruned && parts_[i].length > kSpanPositions) {
        hidden_of_part_.push_back({0, kSpanPositions});
      } else if (shape_.hidden && parts_[i].length > 10) {
        const int begin = Pick(0, parts_[i].length - 8);
        hidden_of_part_.push_back({begin, begin + Pick(1, 7)});
      } else {
        hidden_of_part_.push_back({0, 0});
      }
    }
    stride_ = heads() * shape_.query_dim() + shape_.kv_heads * (shape_.k_dim + shape_.v_dim);
    input_.resize(static_cast<size_t>(rows_) * static_cast<size_t>(stride_));
    for (float& x : input_) x = Random(2.0f);
    for (int head = 0; head < heads(); ++head) {
      slopes_.push_back(Random(0.05f));
      sinks_.push_back(Random(3.0f));
      for (int i = 0; i < kDistances; ++i) distances_.push_back(Random(1.0f));
    }
  }

  // Earlier positions and those of the rows, by the kernel; each block is written once.
  void StoreAll() {
    std::vector<bool> written(kBlocks * kBlockPositions, false);
    for (const Part& part : parts_) {
      for (int position = 0; position < part.length; ++position) {
        const int block = part.blocks[static_cast<size_t>(position / kBlockPositions)];
        const size_t place = static_cast<size_t>(block) * kBlockPositions +
                             static_cast<size_t>(position % kBlockPositions);
        if (written[place]) continue;
        written[place] = true;
        std::vector<float> row(static_cast<size_t>(stride_));
        for (float& x : row) x = Random(2.0f);
        StoreOne(row.data(), position, block);
      }
      for (int i = 0; i < part.rows; ++i) {
        const int position = part.length + i;
        StoreOne(input_.data() + (part.first_row + i) * stride_, position,
                 part.blocks[static_cast<size_t>(position / kBlockPositions)]);
      }
    }
  }

  int key_column() const { return heads() * shape_.query_dim(); }
  int value_column() const { return key_column() + shape_.kv_heads * shape_.k_dim; }
  int heads() const { return shape_.kv_heads * shape_.heads_per_kv; }

  void StoreOne(const float* row, int position, int block);
  // Numbers that are stored.
  double Key(int block, int head, int slot, int d) const;
  double Value(int block, int head, int slot, int d) const;
  // The product of a query and what it meets at a position.
  double Score(const float* query, int block, int head, int slot) const;

  struct Tables {
    std::vector<int32_t> positions, blocks;
    std::vector<Piece> pieces;
    std::vector<Entry> entries;
    std::vector<int32_t> span_entries;
    std::vector<Hidden> hidden;
  };
  // Rows before `first_row` are no part of the pass.
  Tables TablesOf(const std::vector<size_t>& parts, int first_row) const;
  std::vector<float> Attend(const std::vector<size_t>& parts, const std::vector<float>& input,
                            int first_row = 0) const;
  // Runs all ways of cutting the work that a device may choose; they must give equal `results`.
  void RunTiles(AttentionParams params, int pieces, int piece_rows,
                std::vector<float>& results) const;
  // On the device itself.
  Status RunOnDevice(Device& device, AttentionParams params, Tables& tables, int piece_rows,
                     const std::vector<float>& input, size_t partials,
                     std::vector<float>& out) const;
  template <class Block, class Kernel>
  void RunKernel(const AttentionParams& params, int shared_bytes, int blocks) const;
  MergeParams MergeOf(const AttentionParams& params, int pieces) const;
  void Merge(const AttentionParams& params, int pieces, int rows) const;
  std::vector<double> Reference(const Part& part, int row, int head, double* most) const;
  bool Sees(size_t part, int row_position, int position) const {
    const auto& [begin, end] = hidden_of_part_[part];
    return position <= row_position && (position < begin || position >= end) &&
           position >= First(row_position);
  }
  // The first position that a row sees, as the CPU has it.
  int First(int row_position) const {
    const cpu::WindowKind kind = shape_.window_kind == Window::kSections
                                     ? cpu::WindowKind::kSections
                                     : cpu::WindowKind::kSliding;
    return static_cast<int>(cpu::FirstInWindow(kind, shape_.window, row_position));
  }

  static constexpr int kBlocks = 40;
  static constexpr int kDistances = 20;
  static constexpr int kLeast = -15;

  Shape shape_;
  bool many_;
  std::mt19937 random_;
  LayerBlocks blocks_{};
  Bytes memory_{0};
  std::vector<Part> parts_;
  std::vector<std::pair<int, int>> hidden_of_part_;
  int rows_ = 0;
  int stride_ = 0;
  std::vector<float> input_;
  std::vector<float> slopes_, sinks_, distances_;
  // Scores are of up to some ten.
  float scale_ = shape_.key_form == KeyForm::kValueFirst ? 0.15f : 0.3f;
  Device* device_ = nullptr;
  WarpOrder order_ = WarpOrder::kTogether;
};

inline void Case::StoreOne(const float* row, int position, int block) {
  const int32_t position32 = position;
  const int32_t block32 = block;
  StoreParams params{};
  params.blocks = blocks_;
  params.tables.positions = &position32;
  params.tables.blocks = &block32;
  params.input = row;
  params.input_stride = stride_;
  params.key_column = key_column();
  params.value_column = value_column();
  for (int head = 0; head < shape_.kv_heads; ++head) {
    HostBlock thread_block;
    thread_block.x = 0;
    thread_block.y = head;
    thread_block.z = 0;
    thread_block.shared = nullptr;
    StoreRow(thread_block, params);
    // The scalar kernels of the CPU give the same bytes.
    const cpu::KernelTable& kernels = *cpu::ChooseKernels("scalar").value();
    const size_t slot = static_cast<size_t>(position % kBlockPositions);
    const auto check = [&](bool keys, Element element, int dim, const float* vector) {
      const KvType type = CpuElement(element);
      const size_t bytes = cpu::KvRowBytes(type, dim * kBlockPositions);
      const std::byte* stored =
          blocks_.memory + static_cast<uint64_t>(block) * blocks_.block_bytes +
          (keys ? blocks_.keys : blocks_.values) + static_cast<uint64_t>(head) * bytes;
      const auto* scales = reinterpret_cast<const float*>(
          blocks_.memory + static_cast<uint64_t>(block) * blocks_.block_bytes +
          (keys ? blocks_.key_scales : blocks_.value_scales));
      std::vector<std::byte> expected(stored, stored + bytes);
      float scale = 0.0f;
      const size_t offset =
          keys ? cpu::KeyTileOffset(type, dim, slot) : cpu::ValueTileOffset(type, dim, slot);
      if (keys) {
        kernels.store_key(vector, dim, type, static_cast<int>(slot % cpu::kKeyTileTokens),
                          expected.data() + offset, &scale);
      } else {
        kernels.store_value(vector, dim, type, static_cast<int>(slot % cpu::kValueTileTokens),
                            expected.data() + offset, &scale);
      }
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), stored)) << "dim " << dim;
      if (element == Element::kInt8) {
        ASSERT_EQ(scale, scales[static_cast<size_t>(head) * kBlockPositions + slot]);
      }
    };
    check(true, shape_.k_type, shape_.k_dim, row + key_column() + head * shape_.k_dim);
    check(false, shape_.v_type, shape_.v_dim, row + value_column() + head * shape_.v_dim);
  }
}

inline double Case::Key(int block, int head, int slot, int d) const {
  const KvType type = CpuElement(shape_.k_type);
  const size_t token = static_cast<size_t>(slot);
  const std::byte* bytes =
      blocks_.memory + static_cast<uint64_t>(block) * blocks_.block_bytes + blocks_.keys +
      static_cast<uint64_t>(head) * cpu::KvRowBytes(type, kBlockPositions * shape_.k_dim);
  const auto* scales = reinterpret_cast<const float*>(
      blocks_.memory + static_cast<uint64_t>(block) * blocks_.block_bytes + blocks_.key_scales);
  return cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    const double number =
        Format::Decode(Format::Key(bytes + cpu::KeyTileOffset(type, shape_.k_dim, token),
                                   token % cpu::kKeyTileTokens, static_cast<size_t>(d)));
    return Format::kHasScales ? number * static_cast<double>(scales[head * kBlockPositions + slot])
                              : number;
  });
}

inline double Case::Value(int block, int head, int slot, int d) const {
  const KvType type = CpuElement(shape_.v_type);
  const size_t token = static_cast<size_t>(slot);
  const std::byte* bytes =
      blocks_.memory + static_cast<uint64_t>(block) * blocks_.block_bytes + blocks_.values +
      static_cast<uint64_t>(head) * cpu::KvRowBytes(type, kBlockPositions * shape_.v_dim);
  const auto* scales = reinterpret_cast<const float*>(
      blocks_.memory + static_cast<uint64_t>(block) * blocks_.block_bytes + blocks_.value_scales);
  return cpu::VisitKvFormat(type, [&]<class Format>(Format) {
    const double number = Format::Decode(Format::Value(
        bytes + cpu::ValueTileOffset(type, shape_.v_dim, token), token % cpu::kValueTileTokens,
        static_cast<size_t>(d), static_cast<size_t>(shape_.v_dim)));
    return Format::kHasScales ? number * static_cast<double>(scales[head * kBlockPositions + slot])
                              : number;
  });
}

}  // namespace kvant::cuda
