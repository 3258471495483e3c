// Stands in for NVIDIA's driver in tests of cuda/driver.cpp: its devices are emulated on the host.
// Memory of a device is memory of the host, work is done when it is asked for, in the order of
// streams, and kernels are the templates of cuda/kernels/ compiled for the host. A test may let any
// call fail, one after the other; a device may be lost for good. The signatures are those of
// cuda.h, written anew.
//
// Mistakes in the use of the interface count as failures of the call: addresses that were not
// allocated, shared memory beyond the limit, a copy that leaves its allocation, a wait while a
// stream is recorded.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/hopper.h"
#include "cuda/kernels/latent_rows.h"
#include "cuda/kernels/span_rows.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace kvant::cuda;

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kUnknown = 999;

struct Device {
  std::recursive_mutex mutex;
  long calls = 0;
  long fail_at = 0;   // the number of the call that fails, from 1; 0: none does
  bool lost = false;  // every call after it fails, too
  bool loses = false;
  int devices = 2;
  size_t memory = size_t{1} << 30;
  size_t used = 0;
  size_t freed = 0;
  std::map<unsigned long long, size_t> allocations;
  std::map<unsigned long long, size_t> pinned;
};

Device& device() {
  static Device* const made = new Device;  // outlives whatever uses it at exit
  return *made;
}

// A stream does its work at once, unless it is recorded.
struct FakeStream {
  bool recording = false;
  std::vector<std::function<void()>> recorded;
};
struct FakeGraph {
  std::vector<std::function<void()>> work;
};
struct FakeEvent {};

struct Function {
  const char* name;
  int shared_bytes = 48 << 10;
};

int Count() {
  Device& d = device();
  ++d.calls;
  if (d.lost) return kUnknown;
  if (d.calls != d.fail_at) return 0;
  d.lost = d.loses;
  return kUnknown;
}

// Whether [address, address + bytes) lies in one allocation, or in memory that is pinned.
bool IsDevice(unsigned long long address, size_t bytes) {
  auto after = device().allocations.upper_bound(address);
  if (after == device().allocations.begin()) return false;
  --after;
  return address + bytes <= after->first + after->second;
}

int Do(void* stream, std::function<void()> work) {
  auto* of = static_cast<FakeStream*>(stream);
  if (of->recording) {
    of->recorded.push_back(std::move(work));
  } else {
    work();
  }
  return 0;
}

template <class Block, class Params, class Run>
std::function<void()> Kernel(void** arguments, unsigned grid[3], unsigned shared, const Run& run) {
  const Params params = *static_cast<const Params*>(arguments[0]);
  const unsigned x = grid[0], y = grid[1], z = grid[2];
  return [params, x, y, z, shared, run] {
    std::vector<std::max_align_t> bytes(shared / sizeof(std::max_align_t) + 1);
    for (unsigned iz = 0; iz < z; ++iz) {
      for (unsigned iy = 0; iy < y; ++iy) {
        for (unsigned ix = 0; ix < x; ++ix) {
          // A block does not find zeros in shared memory.
          std::memset(bytes.data(), 0xff, bytes.size() * sizeof(std::max_align_t));
          Block block;
          block.x = static_cast<int>(ix);
          block.y = static_cast<int>(iy);
          block.z = static_cast<int>(iz);
          block.shared = reinterpret_cast<std::byte*>(bytes.data());
          run(block, params, static_cast<int>(y));
        }
      }
    }
  };
}

}  // namespace

EXPORT const int kvant_emulated_device = 1;

// ---- For tests ----------------------------------------------------------------------------------

EXPORT void FakeDriverBegin(int failing_call, int device_count) {
  Device& d = device();
  const std::scoped_lock lock(d.mutex);
  d.calls = 0;
  d.fail_at = failing_call;
  d.devices = device_count;
  d.lost = d.loses = false;
  d.memory = size_t{1} << 30;
}
EXPORT int FakeDriverCalls() { return static_cast<int>(device().calls); }
EXPORT void FakeDriverSetMemory(size_t bytes) { device().memory = bytes; }
// The failing call loses the device.
EXPORT void FakeDriverLoses() { device().loses = true; }
// Bytes that are allocated now.
EXPORT size_t FakeDriverUsed() { return device().used; }

// ---- Devices ------------------------------------------------------------------------------------

#define BEGIN                                  \
  const std::scoped_lock lock(device().mutex); \
  if (const int code = Count(); code != 0) return code

EXPORT int cuInit(unsigned flags) {
  // The environment speaks for tests of the program.
  if (const char* bytes = std::getenv("FAKE_CUDA_MEMORY")) {
    device().memory = std::strtoull(bytes, nullptr, 10);
  }
  if (const char* call = std::getenv("FAKE_CUDA_FAIL_AT")) {
    device().fail_at = std::strtol(call, nullptr, 10);
  }
  BEGIN;
  return flags == 0 ? 0 : kInvalidValue;
}
EXPORT int cuDriverGetVersion(int* version) {
  BEGIN;
  *version = 12040;
  return 0;
}
EXPORT int cuGetErrorName(int code, const char** name) {
  *name = code == kUnknown        ? "CUDA_ERROR_UNKNOWN"
          : code == kOutOfMemory  ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE"
                                  : nullptr;
  return *name == nullptr ? 1 : 0;
}
EXPORT int cuDeviceGetCount(int* count) {
  BEGIN;
  *count = device().devices;
  return 0;
}
EXPORT int cuDeviceGet(int* handle, int number) {
  BEGIN;
  *handle = 100 + number;  // a handle need not be the number
  return 0;
}
EXPORT int cuDeviceGetName(char* name, int size, int handle) {
  BEGIN;
  if (handle < 100) return 101;
  std::strncpy(name, handle == 100 ? "Large Card" : "Small Card", static_cast<size_t>(size));
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int handle) {
  BEGIN;
  const bool large = handle == 100;
  switch (attribute) {
    case 16: *value = large ? 132 : 40; return 0;
    case 75: *value = large ? 9 : 7; return 0;
    case 76: *value = large ? 0 : 5; return 0;
    case 97: *value = large ? 227 << 10 : 64 << 10; return 0;
    default: return kInvalidValue;
  }
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int handle) {
  BEGIN;
  *bytes = handle == 100 ? size_t{80} << 30 : size_t{16} << 30;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int handle) {
  BEGIN;
  if (handle < 100) return kInvalidValue;
  *context = &device();
  return 0;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int /*handle*/) { return 0; }
EXPORT int cuCtxSetCurrent(void* context) {
  // Not counted: it is part of every call.
  return context == &device() ? 0 : kInvalidValue;
}

// ---- Memory -------------------------------------------------------------------------------------

EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  BEGIN;
  *total_bytes = device().memory;
  *free_bytes = device().memory > device().used ? device().memory - device().used : 0;
  return 0;
}
EXPORT int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  BEGIN;
  if (bytes == 0) return kInvalidValue;
  if (device().used + bytes > device().memory) return kOutOfMemory;
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return kOutOfMemory;
  std::memset(memory, 0xff, bytes);  // NaN: nobody may rely on zeros
  *address = reinterpret_cast<unsigned long long>(memory);
  device().allocations[*address] = bytes;
  device().used += bytes;
  return 0;
}
EXPORT int cuMemFree_v2(unsigned long long address) {
  const std::scoped_lock lock(device().mutex);
  const auto found = device().allocations.find(address);
  if (found == device().allocations.end()) std::abort();
  device().used -= found->second;
  device().allocations.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  BEGIN;
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*memory == nullptr) return kOutOfMemory;
  std::memset(*memory, 0xff, bytes);
  device().allocations[reinterpret_cast<unsigned long long>(*memory)] = bytes;
  return 0;
}
EXPORT int cuMemFreeHost(void* memory) {
  const std::scoped_lock lock(device().mutex);
  if (device().allocations.erase(reinterpret_cast<unsigned long long>(memory)) == 0) std::abort();
  std::free(memory);
  return 0;
}
EXPORT int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned /*flags*/) {
  BEGIN;
  if (bytes == 0) return kInvalidValue;
  device().pinned[reinterpret_cast<unsigned long long>(memory)] = bytes;
  return 0;
}
EXPORT int cuMemHostUnregister(void* memory) {
  const std::scoped_lock lock(device().mutex);
  if (device().pinned.erase(reinterpret_cast<unsigned long long>(memory)) == 0) std::abort();
  return 0;
}
EXPORT int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes,
                                void* stream) {
  BEGIN;
  if (!IsDevice(to, bytes)) return kInvalidValue;
  return Do(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  BEGIN;
  if (!IsDevice(from, bytes)) return kInvalidValue;
  return Do(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}
EXPORT int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t count, void* stream) {
  BEGIN;
  if (!IsDevice(to, count)) return kInvalidValue;
  return Do(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, count); });
}

// ---- Kernels ------------------------------------------------------------------------------------

EXPORT int cuModuleLoadData(void** module, const void* /*image*/) {
  BEGIN;
  *module = &device();
  return 0;
}
EXPORT int cuModuleUnload(void* /*module*/) { return 0; }
EXPORT int cuModuleGetFunction(void** function, void* /*module*/, const char* name) {
  BEGIN;
  static Function functions[] = {{"kvant_store"},
                                 {"kvant_merge"},
                                 {"kvant_copy"},
                                 {"kvant_spans_64_1"},
                                 {"kvant_spans_128_1"},
                                 {"kvant_spans_256_1"},
                                 {"kvant_spans_64_4"},
                                 {"kvant_spans_128_4"},
                                 {"kvant_spans_256_4"},
                                 {"kvant_hopper_64"},
                                 {"kvant_hopper_128"},
                                 {"kvant_hopper_256"},
                                 {"kvant_hopper_codes_64"},
                                 {"kvant_hopper_codes_128"},
                                 {"kvant_hopper_codes_256"},
                                 {"kvant_latents"}};
  for (Function& known : functions) {
    if (std::strcmp(known.name, name) != 0) continue;
    *function = &known;
    return 0;
  }
  return 500;  // CUDA_ERROR_NOT_FOUND
}
EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  BEGIN;
  if (attribute != 8 || value > 227 << 10) return kInvalidValue;
  static_cast<Function*>(function)->shared_bytes = value;
  return 0;
}
EXPORT int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void* stream, void** params, void** /*extra*/) {
  BEGIN;
  const auto* called = static_cast<const Function*>(function);
  const std::string name = called->name;
  const int threads = name.starts_with("kvant_hopper")  ? kHopperThreads
                      : name.starts_with("kvant_spans") ? kSpanThreads
                      : name == "kvant_latents"         ? kSpanThreads
                      : name == "kvant_merge"           ? kMergeThreads
                                                        : kThreads;
  if (block_x != static_cast<unsigned>(threads) || block_y != 1 || block_z != 1 ||
      grid_x * grid_y * grid_z == 0 || static_cast<int>(shared_bytes) > called->shared_bytes) {
    return kInvalidValue;
  }
  unsigned grid[3] = {grid_x, grid_y, grid_z};
  if (name == "kvant_store") {
    return Do(stream, Kernel<HostBlock, StoreParams>(
                          params, grid, shared_bytes,
                          [](HostBlock& b, const StoreParams& p, int) { StoreRow(b, p); }));
  }
  if (name == "kvant_merge") {
    return Do(stream, Kernel<HostBlock, MergeParams>(params, grid, shared_bytes,
                                                     [](HostBlock& b, const MergeParams& p,
                                                        int heads) { MergeSpans(b, p, heads); }));
  }
  if (name == "kvant_copy") {
    return Do(stream, Kernel<HostBlock, CopyParams>(params, grid, shared_bytes,
                                                    [](HostBlock& b, const CopyParams& p,
                                                       int parts) { CopyRanges(b, p, parts); }));
  }
  const auto attend = [&]<class Block, class Rows>() {
    return Do(stream, Kernel<Block, AttentionParams>(
                          params, grid, shared_bytes,
                          [](Block& b, const AttentionParams& p, int) { Rows::Run(b, p); }));
  };
  if (name == "kvant_spans_64_1") return attend.template operator()<HostBlock, SpanRows<64, 1>>();
  if (name == "kvant_spans_128_1") return attend.template operator()<HostBlock, SpanRows<128, 1>>();
  if (name == "kvant_spans_256_1") return attend.template operator()<HostBlock, SpanRows<256, 1>>();
  if (name == "kvant_spans_64_4") return attend.template operator()<HostBlock, SpanRows<64, 4>>();
  if (name == "kvant_spans_128_4") return attend.template operator()<HostBlock, SpanRows<128, 4>>();
  if (name == "kvant_spans_256_4") return attend.template operator()<HostBlock, SpanRows<256, 4>>();
  if (name == "kvant_latents") return attend.template operator()<HostBlock, LatentRows>();
  if (name == "kvant_hopper_64") {
    return attend.template operator()<HopperBlock, HopperRows<64, false>>();
  }
  if (name == "kvant_hopper_128") {
    return attend.template operator()<HopperBlock, HopperRows<128, false>>();
  }
  if (name == "kvant_hopper_256") {
    return attend.template operator()<HopperBlock, HopperRows<256, false>>();
  }
  if (name == "kvant_hopper_codes_64") {
    return attend.template operator()<HopperBlock, HopperRows<64, true>>();
  }
  if (name == "kvant_hopper_codes_128") {
    return attend.template operator()<HopperBlock, HopperRows<128, true>>();
  }
  return attend.template operator()<HopperBlock, HopperRows<256, true>>();
}

// ---- Order --------------------------------------------------------------------------------------

EXPORT int cuStreamCreate(void** stream, unsigned /*flags*/) {
  BEGIN;
  *stream = new FakeStream;
  return 0;
}
EXPORT int cuStreamDestroy_v2(void* stream) {
  delete static_cast<FakeStream*>(stream);
  return 0;
}
EXPORT int cuStreamSynchronize(void* stream) {
  BEGIN;
  return static_cast<FakeStream*>(stream)->recording ? kInvalidValue : 0;
}
EXPORT int cuStreamWaitEvent(void* stream, void* /*event*/, unsigned /*flags*/) {
  BEGIN;
  return static_cast<FakeStream*>(stream)->recording ? kInvalidValue : 0;
}
EXPORT int cuEventCreate(void** event, unsigned /*flags*/) {
  BEGIN;
  *event = new FakeEvent;
  return 0;
}
EXPORT int cuEventDestroy_v2(void* event) {
  delete static_cast<FakeEvent*>(event);
  return 0;
}
EXPORT int cuEventRecord(void* /*event*/, void* /*stream*/) {
  BEGIN;
  return 0;
}
EXPORT int cuEventSynchronize(void* /*event*/) {
  BEGIN;
  return 0;
}
EXPORT int cuStreamBeginCapture_v2(void* stream, int /*mode*/) {
  BEGIN;
  static_cast<FakeStream*>(stream)->recording = true;
  return 0;
}
EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  auto* of = static_cast<FakeStream*>(stream);
  of->recording = false;
  auto made = std::make_unique<FakeGraph>();
  made->work = std::exchange(of->recorded, {});
  BEGIN;
  *graph = made.release();
  return 0;
}
EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph,
                                       unsigned long long /*flags*/) {
  BEGIN;
  *executable = new FakeGraph(*static_cast<FakeGraph*>(graph));
  return 0;
}
EXPORT int cuGraphLaunch(void* executable, void* stream) {
  BEGIN;
  if (static_cast<FakeStream*>(stream)->recording) return kInvalidValue;
  for (const auto& work : static_cast<FakeGraph*>(executable)->work) work();
  return 0;
}
EXPORT int cuGraphExecDestroy(void* executable) {
  delete static_cast<FakeGraph*>(executable);
  return 0;
}
EXPORT int cuGraphDestroy(void* graph) {
  delete static_cast<FakeGraph*>(graph);
  return 0;
}
