// Products of strips of weights with few tokens, 63 at most. An instruction set includes this file
// after matmul_panel.inl and strip_operands.inl and after it has defined
//
//   kStripColumns, kStripVectors   columns of a strip at most, room for one
//   StripTraitsOf<Unpacker>   what its kernel must know about a format: kItemColumns, kItem, kTrack
//                             and TrackOfLane(lane)
//   StripLines<Traits, Codes>(strip, block, v)   where vector `v` of block `block` of 256 columns
//                             goes, one of Lines (pack_rows.inl)
//   PackLanes<Codes>(rows, lines)   packs kPanelLanes rows of a WeightBlock
//   kStripped<Unpacker>       whether a format has strips
//   StripTokens<Unpacker>()   the least number of tokens that they are for on this CPU
//   MultiplyTrack<Traits, kTokens>(items, count, tokens, activations, sums)   adds the products of
//                             `count` items of a track and the tokens of a tile to sums
//
// A strip is up to kStripColumns columns of a panel's rows, a lane for each. An item is as many
// columns as a lane of an accumulator of int8_blocks.inl takes at once, 32 or 16: lines of codes
// for every four columns, then scales, then offsets where the format has them.
//
// Sums have the bits that blocks of int8_blocks.inl give: there a lane of an accumulator sums every
// kPanelLanes-th item, and Sum() adds the lanes. So such items of a strip lie one behind the other,
// a track, and each of the kPanelLanes tracks has a sum of its own.

// The bytes that are prefetched while a strip is multiplied: those that the next strip is made of,
// some for each track of each tile.
class NextStrip {
 public:
  NextStrip() = default;
  NextStrip(RowBlocks rows, int64_t height, int64_t bytes, int64_t parts)
      : rows_(rows), bytes_(bytes), height_(height), parts_(parts) {}

  // Inline, since GCC drops calls of functions that do no more.
  [[gnu::always_inline]] void PrefetchPart() {
    const int64_t end = height_ * ++part_ / parts_;
    for (; row_ < end; ++row_) PrefetchBlock<PrefetchTo::kSecondLevel>(rows_[row_], bytes_);
  }

 private:
  RowBlocks rows_ = {};
  int64_t bytes_ = 0;
  int64_t height_ = 0;
  int64_t parts_ = 1;
  int64_t part_ = 0;
  int64_t row_ = 0;
};

// A strip of `cols` columns, and whether they are a row's first and its last.
struct StripView {
  const Accumulator* items;
  int64_t cols;
  bool first, last;
};

// Sums of a tile, kTrackSums vectors each of [tokens][kPanelVectors]. In the last strip `stack[0]`
// becomes the sum of all tracks; above it at most as many sums wait for others as a track's number
// has bits.
struct TileSums {
  Accumulator* tracks;  // [kPanelLanes]
  Accumulator* stack;   // [kSumsInStack]
};
constexpr int kTrackBits = std::countr_zero(static_cast<uint64_t>(kPanelLanes));
constexpr int64_t kSumsInStack = kTrackBits + 1;

// The tracks in the order in which their sums are made: of lanes whose numbers have the bits of 0,
// 1, 2 ... backwards, so that of two sums that are added one comes right after the other.
template <class Traits>
constexpr std::array<int8_t, kPanelLanes> TracksInOrder() {
  std::array<int8_t, kPanelLanes> tracks = {};
  for (unsigned i = 0; i < kPanelLanes; ++i) {
    unsigned lane = 0;
    for (int bit = 0; bit < kTrackBits; ++bit) lane |= (i >> bit & 1) << (kTrackBits - 1 - bit);
    tracks[i] = static_cast<int8_t>(Traits::TrackOfLane(lane));
  }
  return tracks;
}

// sums += a strip times the tokens of a tile.
template <class Traits, int kTokens>
[[gnu::noinline]] void MultiplyStrip(const StripView& strip, const TileTokens& tokens,
                                     const PanelActivations& at, NextStrip& next,
                                     const TileSums& sums) {
  static constexpr std::array<int8_t, kPanelLanes> kTracks = TracksInOrder<Traits>();
  const int64_t items = strip.cols / Traits::kItemColumns;
  Accumulator* stack = sums.stack;
  for (unsigned i = 0; i < kPanelLanes; ++i) {
    next.PrefetchPart();
    const int64_t track = kTracks[i];
    const int64_t pair = track * Traits::kItemColumns / 32;
    const int64_t count = std::max<int64_t>(items - track + kPanelLanes - 1, 0) / kPanelLanes;
    Accumulator* own = sums.tracks + track * kTrackSums;
    const int adds = std::countr_one(i);
    MultiplyTrack<Traits, kTokens>(
        strip.items + track * Traits::kTrack, count, tokens,
        {at.codes + track * Traits::kItemColumns, at.scales + 4 * pair, at.starts + 4 * track,
         at.sums + 4 * track, 0},
        {strip.first ? nullptr : own, strip.last ? stack : own, strip.last ? adds : 0});
    stack += (1 - adds) * kTrackSums;
  }
}

// The traits of a format's strips that the loops below need.
struct StripFormat {
  using Multiply = void (*)(const StripView& strip, const TileTokens& tokens,
                            const PanelActivations& at, NextStrip& next, const TileSums& sums);

  RowReader reader;
  // kPanelLanes rows of a block of 256 columns, which may be put in another order there, to vector
  // `v` of block `block` of a strip.
  void (*pack)(WeightBlock* rows, Accumulator* strip, int64_t block, int64_t v);
  // Packs a block from the bytes of its rows. May be null.
  void (*pack_rows)(RowBlocks rows, Accumulator* strip, int64_t block, int64_t v);
  Multiply multiply[kStripTokensMax - kStripTokensMin + 1];  // by tokens of a tile
  int item_columns;

  template <class Unpacker>
  static StripFormat Of(const MatMulTask& task) {
    using Codes = typename Unpacker::Codes;
    using Traits = StripTraitsOf<Unpacker>;
    StripFormat format = {
        {UnpackBlocks<Unpacker>, BlockBytes<Unpacker>(*task.format), task.format, task.cols},
        Pack<Traits, Codes>,
        nullptr,
        {MultiplyStrip<Traits, 4>, MultiplyStrip<Traits, 5>, MultiplyStrip<Traits, 6>},
        Traits::kItemColumns};
    if constexpr (requires { typename Unpacker::Rows; }) {
      format.pack_rows = PackRows<Traits, typename Unpacker::Rows>;
    }
    return format;
  }

 private:
  template <class Traits, class Codes>
  static void Pack(WeightBlock* rows, Accumulator* strip, int64_t block, int64_t v) {
    PackLanes<Codes>(rows, StripLines<Traits, Codes>(strip, block, v));
  }
  template <class Traits, class Rows>
  static void PackRows(RowBlocks rows, Accumulator* strip, int64_t block, int64_t v) {
    Rows::PackTo(rows, StripLines<Traits, typename Rows::Codes>(strip, block, v));
  }
};

// The parts of a thread's scratch memory.
struct StripScratch {
  static constexpr int64_t kTiles = (kManyTokens - 1 + kStripTokensMax - 1) / kStripTokensMax;

  Accumulator* strip;  // [kStripVectors]
  Accumulator* stack;  // as in TileSums, of one tile after the other
  Accumulator* sums;   // [kTiles][kPanelLanes][kTrackSums], where rows have several strips

  explicit StripScratch(std::byte* bytes)
      : strip(reinterpret_cast<Accumulator*>(bytes)),
        stack(strip + kStripVectors),
        sums(stack + kSumsInStack * kTrackSums) {}

  static constexpr size_t Bytes() {
    return (kStripVectors + (kSumsInStack + kTiles * kPanelLanes) * kTrackSums) *
           sizeof(Accumulator);
  }
};

// Some rows, at most a panel's, and columns of them, at most kStripColumns.
struct StripPlace {
  int64_t row, rows;
  int64_t col, cols;
};

// kPanelLanes rows from row `first` of a place on, some of which may be missing, to vector `v` of a
// strip.
inline void PackStrip(const MatMulTask& task, const StripFormat& format, const StripPlace& place,
                      int64_t v, Accumulator* strip) {
  const int64_t first = v * kPanelLanes;
  const auto row = [&](int64_t r) {
    return task.weights + (place.row + std::min(first + r, place.rows - 1)) * task.row_bytes;
  };
  const int64_t begin = place.col / kBlock;
  const int64_t bytes = format.reader.block_bytes;
  int64_t block = 0;
  if (format.pack_rows != nullptr && first + kPanelLanes <= place.rows) {
    const RowBlocks rows = {row(0) + begin * bytes, task.row_bytes};
    for (; block < place.cols / kBlock; ++block) {
      const RowBlocks blocks = {rows.first + block * bytes, rows.stride};
      // Also where the bytes lie in the second level: small pages are translated ahead.
      for (int64_t r = 0; r < kPanelLanes; ++r) {
        PrefetchBlock<PrefetchTo::kFirstLevel>(blocks[r] + bytes, bytes);
      }
      format.pack_rows(blocks, strip, block, v);
    }
    if (block < BlockCount(place.cols) && RowEndCopies::Takes(format.reader)) {
      const RowEndCopies ends(format.reader, {rows.first + block * bytes, rows.stride});
      format.pack_rows(ends.blocks(), strip, block++, v);
    }
  }
  for (; block < BlockCount(place.cols); ++block) {
    WeightBlock rows[kPanelLanes];
    for (int64_t r = 0; r < kPanelLanes; ++r) {
      format.reader.Read(row(r), begin + block, begin + block + 1, Ahead(), rows + r);
    }
    format.pack(rows, strip, block, v);
  }
}

// The bytes of the place that comes after this one.
inline NextStrip NextAfter(const MatMulTask& task, const StripFormat& format,
                           const StripPlace& place, int64_t parts) {
  int64_t row = place.row;
  int64_t col = place.col + kStripColumns;
  if (col >= task.cols) {
    row += kPanelHeight;
    col = 0;
  }
  const int64_t height = std::min(kPanelHeight, task.row_end - row);
  if (height <= 0) return {};
  const int64_t bytes = format.reader.block_bytes;
  const std::byte* first = task.weights + row * task.row_bytes + col / kBlock * bytes;
  const int64_t blocks = BlockCount(std::min(kStripColumns, task.cols - col));
  return {{first, task.row_bytes}, height, blocks * bytes, parts};
}

// The products of the rows at a place, whose last columns have been multiplied, with one tile.
inline void PutProducts(const MatMulTask& task, const StripPlace& place, int64_t token,
                        int64_t tokens, const Accumulator* products) {
  for (int64_t t = 0; t < tokens; ++t, products += kPanelVectors) {
    float* out = task.out + (token + t) * task.out_stride + place.row;
    for (int64_t v = 0; v < kPanelVectors; ++v) {
      StoreLanes(products[v], place.rows - v * kPanelLanes, task.store, out + v * kPanelLanes);
    }
  }
}

[[gnu::noinline]] inline void RunStrips(const MatMulTask& task, const StripFormat& format) {
  if (task.arranged != nullptr) *task.arranged = {};
  const StripScratch scratch(task.scratch.data());
  const PanelActivations activations = PanelActivations::Of(task, 32 / format.item_columns);
  const int64_t tiles = (task.tokens + kStripTokensMax - 1) / kStripTokensMax;
  const auto run = [&](const StripPlace& place) {
    for (int64_t v = 0; v * kPanelLanes < place.rows; ++v) {
      PackStrip(task, format, place, v, scratch.strip);
    }
    NextStrip next = NextAfter(task, format, place, kPanelLanes * tiles);
    const PanelActivations at = activations.From(place.col / 32, 32 / format.item_columns);
    const StripView strip = {scratch.strip, place.cols, place.col == 0,
                             place.col + place.cols == task.cols};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles differ by one token at most. A tile of three is multiplied as four.
      const int64_t token = tile * task.tokens / tiles;
      const int64_t count = (tile + 1) * task.tokens / tiles - token;
      const TileSums sums = {scratch.sums + tile * kPanelLanes * kTrackSums, scratch.stack};
      const int64_t kernel = std::max<int64_t>(count - kStripTokensMin, 0);
      format.multiply[kernel](strip, TileTokens(task, token), at, next, sums);
      if (strip.last) PutProducts(task, place, token, count, sums.stack);
    }
  };
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelHeight) {
    for (int64_t col = 0; col < task.cols; col += kStripColumns) {
      run({row, std::min(kPanelHeight, task.row_end - row), col,
           std::min(kStripColumns, task.cols - col)});
    }
  }
}

// All numbers of tokens.
template <class Unpacker, Streams kStreamed = Streams::kEveryCount>
void RunWithStrips(const MatMulTask& task) {
  if constexpr (kStripped<Unpacker>) {
    if (task.count == TokenCount::kFew && task.tokens >= StripTokens<Unpacker>() &&
        task.tokens < kManyTokens) {
      return RunStrips(task, StripFormat::Of<Unpacker>(task));
    }
  }
  RunQuantized<Unpacker, kStreamed>(task);
}

inline size_t ScratchBytesWithStrips(int64_t cols) {
  return std::max(QuantizedScratchBytes(cols), StripScratch::Bytes());
}
