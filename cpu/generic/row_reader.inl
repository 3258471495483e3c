// How the rows of quantized weights are read and unpacked, shared by the vector instruction sets:
// included before int8_kernels.inl, which says what an instruction set and its formats' unpackers
// define.

constexpr int64_t kBlock = quant::kBlockValuesMax;

// The prefetch while blocks are unpacked: its distance ahead of them in bytes, and the cache that
// it fills.
enum class PrefetchTo { kFirstLevel, kSecondLevel };
struct Ahead {
  int64_t bytes;
  PrefetchTo to;
};

inline int64_t BlockCount(int64_t cols) { return (cols + kBlock - 1) / kBlock; }

// Blocks of a unit, at most.
constexpr int kUnitMax = 2;
template <class Codes>
constexpr int UnitBlocks() {
  if constexpr (requires { Codes::kUnit; }) return Codes::kUnit;
  return 1;
}

// Whether JoinUnit leaves the scales of a unit in its first block.
template <class Codes>
constexpr bool UnitsShareScales() {
  if constexpr (requires { Codes::kSharesScales; }) return Codes::kSharesScales;
  return false;
}

// The blocks of whole units that hold `cols` columns, whatever a unit is.
inline int64_t BlockRoom(int64_t cols) {
  return (BlockCount(cols) + kUnitMax - 1) / kUnitMax * kUnitMax;
}

// Asks for the bytes of a block, which is not read soon.
template <PrefetchTo kPrefetchTo>
[[gnu::always_inline]] inline void PrefetchBlock(const std::byte* block, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) {
    __builtin_prefetch(block + line, 0, kPrefetchTo == PrefetchTo::kFirstLevel ? 3 : 2);
  }
}

[[gnu::always_inline]] inline void PrefetchAhead(const Ahead& ahead, const std::byte* block,
                                                 int64_t bytes) {
  if (ahead.to == PrefetchTo::kFirstLevel) {
    PrefetchBlock<PrefetchTo::kFirstLevel>(block + ahead.bytes, bytes);
  } else {
    PrefetchBlock<PrefetchTo::kSecondLevel>(block + ahead.bytes, bytes);
  }
}

// The bytes of 256 weights.
template <class Unpacker>
int64_t BlockBytes(const quant::FormatTraits& traits) {
  return Unpacker::kBytes > 0 ? Unpacker::kBytes : traits.row_bytes(kBlock) - traits.head_bytes;
}

template <class Unpacker>
concept UnpacksTwo =
    requires(const std::byte* bytes, WeightBlock* out) { Unpacker::UnpackTwo(bytes, bytes, out); };

// An unpacker of blocks whose scales the row's factor multiplies.
template <class Unpacker>
concept HasRowFactor = requires { requires Unpacker::kHasRowFactor; };

// Unpacks `count` blocks that follow each other.
using UnpackFunction = void (*)(const std::byte* bytes, int64_t count, const Ahead& ahead,
                                const quant::FormatTraits& traits, WeightBlock* out);

// A format's unpacker as a function: beside what loops over several tokens do with a block a call
// costs nothing, and they need not be compiled for every format.
template <class Unpacker>
[[gnu::noinline]] void UnpackBlocks(const std::byte* bytes, int64_t count, const Ahead& ahead,
                                    const quant::FormatTraits& traits, WeightBlock* out) {
  const int64_t stride = BlockBytes<Unpacker>(traits);
  int64_t i = 0;
  if constexpr (UnpacksTwo<Unpacker>) {
    for (; i + 1 < count; i += 2) {
      const std::byte* block = bytes + i * stride;
      PrefetchBlock<PrefetchTo::kFirstLevel>(block + ahead.bytes, 2 * stride);
      Unpacker::UnpackTwo(block, block + stride, out + i);
    }
  }
  for (; i < count; ++i) {
    const std::byte* block = bytes + i * stride;
    PrefetchAhead(ahead, block, stride);
    new (out + i) WeightBlock(Unpacker::Unpack(block, traits));  // GCC copies what is assigned
  }
}

// The blocks of a unit, `stride` bytes apart; zeros stand in for the second unless `whole`.
template <class Unpacker, int kUnit>
[[gnu::always_inline]] inline void UnpackUnit(const std::byte* bytes, int64_t stride, bool whole,
                                              const quant::FormatTraits& traits, WeightBlock* out) {
  if constexpr (kUnit == 1) {
    out[0] = Unpacker::Unpack(bytes, traits);
  } else {
    const std::byte* second = whole ? bytes + stride : bytes;
    if constexpr (UnpacksTwo<Unpacker>) {
      Unpacker::UnpackTwo(bytes, second, out);
    } else {
      out[0] = Unpacker::Unpack(bytes, traits);
      out[1] = Unpacker::Unpack(second, traits);
    }
    if (!whole) out[1] = WeightBlock{};
  }
}

// Unpacks `count` blocks as UnpackBlocks does and arranges them in units as they are multiplied;
// `count` is odd only at the end of a row.
template <class Unpacker, class Codes>
[[gnu::noinline]] void UnpackUnits(const std::byte* bytes, int64_t count, const Ahead& ahead,
                                   const quant::FormatTraits& traits, WeightBlock* out) {
  const int64_t stride = BlockBytes<Unpacker>(traits);
  for (int64_t i = 0; i < count; i += kUnitMax) {
    const std::byte* block = bytes + i * stride;
    PrefetchAhead(ahead, block, kUnitMax * stride);
    WeightBlock unit[kUnitMax];
    UnpackUnit<Unpacker, kUnitMax>(block, stride, i + 1 < count, traits, unit);
    JoinUnit<Codes>(unit, out + i);
  }
}

// How the rows of a format's blocks are read.
struct RowReader {
  UnpackFunction unpack;
  int64_t block_bytes;
  const quant::FormatTraits* traits;
  int64_t cols;
  int64_t unit = 1;         // blocks that are unpacked together
  int64_t scales_from = 1;  // blocks from one with scales to the next, once they are unpacked

  // The number of blocks before `end` that need no zeros behind the row's bytes.
  int64_t WholeBlocks(int64_t end) const {
    const int64_t whole = std::min(end, cols / kBlock);
    return whole == end ? whole : whole / unit * unit;
  }

  // Blocks [begin, end) of a row, with its factor where it has one. Units are whole but the last.
  void Read(const std::byte* row, int64_t begin, int64_t end, const Ahead& ahead,
            WeightBlock* out) const {
    const int64_t whole = WholeBlocks(end);
    unpack(row + traits->head_bytes + begin * block_bytes, whole - begin, ahead, *traits, out);
    if (whole < end) ReadEnd(row, whole, end, out + (whole - begin));
    if (traits->head_bytes == 0) return;
    const float factor = traits->row_factor(row);
    for (int64_t i = 0; i < end - begin; i += scales_from) ScaleBlock(out[i], factor);
  }

  // A row that ends inside a block has bytes behind its whole blocks, the last of a unit among
  // them. They are copied to where zeros follow, which decode to zero scales and offsets.
  static constexpr int64_t kEndMax = kUnitMax * kBlock * int64_t{sizeof(float)};

  // Whether rows end inside a block or unit, and the next row's blocks follow at once, no fewer
  // bytes than are missing.
  bool EndsInPlace() const {
    const int64_t blocks = BlockCount(cols);
    const int64_t whole = WholeBlocks(blocks);
    return whole < blocks && whole > 0 && traits->head_bytes == 0;
  }

  int64_t EndBytes(int64_t whole) const {
    return traits->row_bytes(cols - whole * kBlock) - traits->head_bytes;
  }

  [[gnu::always_inline]] void CopyEnd(const std::byte* row, int64_t whole, int64_t bytes,
                                      std::byte* out) const {
    const std::byte* from = row + traits->head_bytes + whole * block_bytes;
    if (bytes < 16) {
      std::memcpy(out, from, static_cast<size_t>(bytes));
      return;
    }
    for (int64_t i = 0; i + 16 < bytes; i += 16) {
      std::memcpy(out + i, from + i, 16);
      asm volatile("" ::: "memory");  // or GCC calls a function, which takes longer
    }
    std::memcpy(out + bytes - 16, from + bytes - 16, 16);
  }

  // Blocks from `whole` on.
  [[gnu::noinline]] void ReadEnd(const std::byte* row, int64_t whole, int64_t end,
                                 WeightBlock* out) const {
    alignas(64) std::byte copy[kEndMax];
    const int64_t bytes = EndBytes(whole);
    CopyEnd(row, whole, bytes, copy);
    std::memset(copy + bytes, 0, static_cast<size_t>((end - whole) * block_bytes - bytes));
    unpack(copy, end - whole, {0, PrefetchTo::kFirstLevel}, *traits, out);
  }
};
