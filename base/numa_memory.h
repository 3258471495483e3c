// Where pages of memory lie on machines with several nodes, by the system's own calls. What the
// system refuses is no error: the memory stays where it is and works as before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvant {

struct PagesPlaced {
  int64_t pages = 0;  // that were looked at
  int64_t there = 0;  // that lie where they should, at the end

  PagesPlaced& operator+=(const PagesPlaced& other) {
    pages += other.pages;
    there += other.there;
    return *this;
  }
};

// The pages whose first byte belongs to `memory`. So parts of a range that follow each other have
// each page once.
std::span<const std::byte> PagesBegunIn(std::span<const std::byte> memory);

// Reads a byte of each of these pages, which brings them into memory, and moves them to the node.
// Pages of a file that other processes have mapped, too, stay where they are.
PagesPlaced MovePagesTo(std::span<const std::byte> memory, int64_t node);

// Spreads pages over nodes, one page to each node in turn, or all to one node: pages that are
// touched later, and, where pages can be moved, pages that were touched before. False where the
// system refuses.
bool SpreadPages(std::span<std::byte> memory, std::span<const int64_t> nodes);

}  // namespace kvant
