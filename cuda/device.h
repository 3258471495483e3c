// A device: its memory, the kernels of this build, and the work that it is told to do.
//
// Work is put into a stream and done in order; the calls return at once. Memory of the host that
// takes part must be pinned (Pin, or MemoryKind::kHost), or a copy waits for itself. Errors of work
// show at a later call, which is why nothing is believed before Wait.
//
// Thread-safety: one thread at a time for each device; which one may change from call to call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/result.h"
#include "cuda/driver.h"
#include "cuda/kernels/layouts.h"

namespace kvant::cuda {

class Device;

using Address = DriverFunctions::Address;

enum class MemoryKind : uint8_t {
  kDevice,
  kHost,  // of the host, pinned; the device reads and writes it across the bus
};

// Memory that the device reads and writes. Empty after a move.
class Memory {
 public:
  Memory() = default;
  Memory(std::shared_ptr<Device> device, MemoryKind kind, Address address, size_t bytes)
      : device_(std::move(device)), kind_(kind), address_(address), bytes_(bytes) {}
  Memory(Memory&& other) noexcept { Swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Memory();

  size_t bytes() const { return bytes_; }
  Address address() const { return address_; }
  // The address as kernels have it; of MemoryKind::kHost, the host's, too.
  template <class T = std::byte>
  T* pointer(size_t offset = 0) const {
    return reinterpret_cast<T*>(address_ + offset);
  }

 private:
  void Swap(Memory& other) {
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
  }

  std::shared_ptr<Device> device_;
  MemoryKind kind_ = MemoryKind::kDevice;
  Address address_ = 0;
  size_t bytes_ = 0;
};

// Memory of the host that is pinned for as long as this lives.
class Pin {
 public:
  Pin() = default;
  Pin(std::shared_ptr<Device> device, void* memory) : device_(std::move(device)), memory_(memory) {}
  Pin(Pin&& other) noexcept { Swap(other); }
  Pin& operator=(Pin&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Pin();

 private:
  void Swap(Pin& other) {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
  }

  std::shared_ptr<Device> device_;
  void* memory_ = nullptr;
};

// Work that was recorded once, and can be done again with one call.
class Graph {
 public:
  Graph() = default;
  Graph(std::shared_ptr<Device> device, DriverFunctions::Object executable)
      : device_(std::move(device)), executable_(executable) {}
  Graph(Graph&& other) noexcept { Swap(other); }
  Graph& operator=(Graph&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Graph();
  explicit operator bool() const { return executable_ != nullptr; }

 private:
  friend class Device;
  void Swap(Graph& other) {
    std::swap(device_, other.device_);
    std::swap(executable_, other.executable_);
  }

  std::shared_ptr<Device> device_;
  DriverFunctions::Object executable_ = nullptr;
};

// Thread blocks of a kernel.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

// Streams: what computes, and what brings results to the host meanwhile.
enum class Stream : uint8_t { kWork, kResults };
inline constexpr int kStreams = 2;
// Marks in a stream that others wait for.
inline constexpr int kEvents = 8;

// How a device attends for rows.
struct AttentionPlan {
  int kernel = 0;
  int threads = 0;        // of a thread block
  int block_queries = 0;  // query vectors of a kv head that it attends for
  int round = 0;          // AttentionParams::round
  size_t shared_bytes = 0;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // The first device of the driver. kNotSupported without a driver, a device that is new enough
  // (compute capability 7.5), or kernels in this build; kIo, kOutOfMemory.
  static Result<std::shared_ptr<Device>> Open();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  // Memory of the device that nobody uses.
  Result<uint64_t> FreeBytes();

  // kOutOfMemory.
  Result<Memory> Allocate(MemoryKind kind, size_t bytes);
  Result<Pin> PinHost(std::span<std::byte> memory);

  Status Upload(Stream stream, Address to, const void* from, size_t bytes);
  Status Download(Stream stream, void* to, Address from, size_t bytes);
  Status Fill(Stream stream, Address to, std::byte value, size_t bytes);

  Status Store(const StoreParams& params, Grid grid);
  // The rows of a pass, and the plan of attention for pieces of at most `queries` query vectors of
  // a kv head. CanAttend says what the shape must be.
  enum class Rows : uint8_t { kFew, kMany, kManyOfOneSequence };  // of many no results are merged
  AttentionPlan PlanOf(const LayerBlocks& blocks, int64_t queries, Rows rows) const;
  // Sets what params has of the plan.
  Status Attend(AttentionParams params, const AttentionPlan& plan, Grid grid);
  Status Merge(const MergeParams& params, Grid grid);
  Status Copy(const CopyParams& params, Grid grid);

  // Whether heads, or latents, of the dimensions of `blocks` are small enough for the device's
  // shared memory. kNotSupported says what was expected.
  Status CanAttend(const LayerBlocks& blocks) const;

  // An event is a mark behind all work that is in the stream now.
  Status Record(Stream stream, int event);
  Status Follow(Stream stream, int event);  // later work of the stream waits for the event
  Status Wait(int event);                   // the calling thread does
  Status Wait(Stream stream);

  // Between the two, calls for Stream::kWork are recorded and not done. A failed recording ends.
  Status BeginRecording();
  Result<Graph> EndRecording();
  Status Run(const Graph& graph);

  // Bytes that uploads and downloads were asked to move, recorded ones not counted.
  struct Traffic {
    uint64_t up = 0;
    uint64_t down = 0;
  };
  Traffic traffic() const { return traffic_; }
  // Adds what a graph moves.
  void CountTraffic(const Traffic& traffic) {
    traffic_.up += traffic.up;
    traffic_.down += traffic.down;
  }

 private:
  friend class Memory;
  friend class Pin;
  friend class Graph;
  using Object = DriverFunctions::Object;

  // Each kernel of attention, but kLatents, is followed by its forms for up to 128 and 256
  // dimensions. kSpans is for 16 query vectors, kSpans4 for 64.
  enum Kernel : uint8_t {
    kStore,
    kMerge,
    kCopy,
    kSpans,
    kSpans4 = kSpans + 3,
    kHopper = kSpans4 + 3,
    kHopperCodes = kHopper + 3,
    kLatents = kHopperCodes + 3
  };
  static constexpr size_t kKernels = kLatents + 1;

  Device(const Driver& driver, DeviceFacts facts) : driver_(driver), facts_(std::move(facts)) {}
  Status Start();
  Status LoadKernels();
  Status Bind();  // makes the device's context the calling thread's
  Status Launch(int kernel, const Grid& grid, int threads, size_t shared_bytes, const void* params);
  Object StreamOf(Stream stream) const { return streams_[static_cast<size_t>(stream)]; }
  // The layout with as many blocks at a time as there is room for, one at least.
  SpanLayout LayoutOf(const LayerBlocks& blocks, int tiles) const;

  const DriverFunctions& call() const { return driver_.call(); }

  Driver driver_;
  DeviceFacts facts_;
  int handle_ = 0;
  bool retained_ = false;
  bool recording_ = false;
  Object context_ = nullptr;
  Object module_ = nullptr;
  std::array<Object, kKernels> kernels_{};
  std::array<Object, kStreams> streams_{};
  std::array<Object, kEvents> events_{};
  Traffic traffic_;
};

}  // namespace kvant::cuda
