// How the work of a phase is cut into shares (base/thread_pool.h), for nodes that compute shares
// and for callers that want to know beforehand what each share takes.
//
// A cut never changes a bit: it runs along rows of weights, rows of the pass, heads or positions.
// Invariant: the pieces of all shares together are the whole work, each once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace kvant::graph {

// One of the shares that a phase is cut into.
struct ShareNumber {
  int64_t index;
  int64_t count;
};
inline ShareNumber ShareOf(const ThreadPool::Member& member) {
  return {member.index, member.count};
}

// Calls run(piece, tiles) for what a share has of pieces [0, pieces), each of tiles(piece) tiles of
// cost(piece) each: stretches of about equal cost. A tile belongs to the share in which it begins.
template <class Tiles, class Cost, class Run>
void ForWeightedShare(int64_t pieces, const Tiles& tiles, const Cost& cost,
                      const ShareNumber& share, const Run& run) {
  int64_t total = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) total += tiles(piece) * cost(piece);
  const int64_t begin = total * share.index / share.count;
  const int64_t end = total * (share.index + 1) / share.count;
  int64_t at = 0;  // the cost of all tiles before the piece's
  for (int64_t piece = 0; piece < pieces && at < end; ++piece) {
    const int64_t each = cost(piece);
    if (each == 0) continue;
    const auto tile_at = [&](int64_t border) {
      return std::clamp<int64_t>((border - at + each - 1) / each, 0, tiles(piece));
    };
    const int64_t first = begin <= at ? 0 : tile_at(begin);
    const int64_t last = tile_at(end);
    at += tiles(piece) * each;
    if (first < last) run(piece, Range{first, last});
  }
}

// The place of a share where units are dealt in turn: first one to each thread, then the next, from
// the last thread to the first, and so on, so that units that grow or shrink make equal sums. A
// share takes the units at its place, its place + count, and so on.
inline int64_t PlaceInTurn(const ShareNumber& share) {
  constexpr int64_t kOwn = ThreadPool::kSharesPerThread;
  if (share.count % kOwn != 0) return share.index;
  const int64_t threads = share.count / kOwn;
  const int64_t thread = share.index / kOwn;
  const int64_t round = share.index % kOwn;
  return round * threads + (round % 2 == 0 ? thread : threads - 1 - thread);
}

// Weight rows that products of many tokens take at once: a panel, or two small ones, of any
// instruction set. A share with half a panel would take as long as one with a whole one.
inline constexpr int64_t kPanelTile = 32;

// The least tokens of a piece, where tiles of weight rows are cut into pieces of tokens because
// there are too few tiles for all threads. With this many tokens, unpacking the weights once for
// each piece costs a few percent.
inline constexpr int64_t kPieceTokens = 96;
// Borders of pieces are multiples of this, so that few of them cut a kernel's tile of tokens.
inline constexpr int64_t kPieceTile = 16;
// Unequal shares of units may cost a team this factor of time before a finer cut is looked for.
inline constexpr double kUnequal = 1.02;

// Into how many pieces of tokens each tile of weight rows is cut: so few as give each thread two
// and all about as many.
inline int64_t TokenPieces(int64_t tiles, int64_t tokens, int64_t shares) {
  const int64_t threads = std::max<int64_t>(1, shares / ThreadPool::kSharesPerThread);
  const int64_t most = std::max<int64_t>(1, tokens / kPieceTokens);
  if (tiles == 0 || threads == 1) return 1;
  const int64_t least = std::clamp<int64_t>((2 * threads + tiles - 1) / tiles, 1, most);
  int64_t best = least;
  double best_loss = 0;
  for (int64_t pieces = least; pieces <= std::min(most, least + 2); ++pieces) {
    const int64_t units = tiles * pieces;
    const double loss =
        static_cast<double>((units + threads - 1) / threads * threads) / static_cast<double>(units);
    if (pieces > least && loss >= best_loss) continue;
    best = pieces;
    best_loss = loss;
    if (loss <= kUnequal) break;
  }
  return best;
}

// Tokens [begin, end) of piece number `piece` of `pieces`.
inline Range TokenPiece(int64_t tokens, int64_t piece, int64_t pieces) {
  return OwnedRange(tokens, pieces == 1 ? tokens : kPieceTile, static_cast<int>(piece),
                    static_cast<int>(pieces));
}

// Calls run(tile, pieces) for a share of tiles x pieces, the pieces of a tile one after the other.
template <class Run>
void ForTilesAndPieces(int64_t tiles, int64_t pieces, const ShareNumber& share, const Run& run) {
  int64_t unit = tiles * pieces * share.index / share.count;
  const int64_t end = tiles * pieces * (share.index + 1) / share.count;
  while (unit < end) {
    const int64_t tile = unit / pieces;
    const int64_t next = std::min(end, (tile + 1) * pieces);
    run(tile, Range{unit - tile * pieces, next - tile * pieces});
    unit = next;
  }
}

}  // namespace kvant::graph
