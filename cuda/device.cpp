// Calls of the driver for one device, through the context that all of the process share.
#include "cuda/device.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/kernel_image.h"

namespace kvant::cuda {
namespace {

// Constants of cuda.h.
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kEventWithoutTimes = 2;
constexpr unsigned kHostMemoryMapped = 2;  // CU_MEMHOSTALLOC_DEVICEMAP
constexpr unsigned kRegisterMapped = 2;    // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr int kCaptureOfThread = 1;        // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

constexpr int kOldestMajor = 7;
constexpr int kOldestMinor = 5;
constexpr int kHopperMajor = 9;  // and 0: hopper.h's instructions are those of 9.0 alone

// The most thread blocks of the second and third dimension.
constexpr int64_t kGridMax = 65535;
constexpr int64_t kGridMaxX = 2147483647;

constexpr int kDimMax = 256;
constexpr int kDimStep = 8;

// Shared memory of the kernels of hopper.h, by size: 64, 128 and 256 dimensions.
int HopperBytes(int size) {
  return size == 0   ? HopperLayout<64>::kBytes
         : size == 1 ? HopperLayout<128>::kBytes
                     : HopperLayout<256>::kBytes;
}

}  // namespace

// ---- What lives as long as its object -----------------------------------------------------------

Memory::~Memory() {
  if (device_ == nullptr || address_ == 0 || !device_->Bind().ok()) return;
  if (kind_ == MemoryKind::kHost) {
    device_->call().mem_free_host(pointer<void>());
  } else {
    device_->call().mem_free(address_);
  }
}

Pin::~Pin() {
  if (device_ != nullptr && device_->Bind().ok()) device_->call().mem_host_unregister(memory_);
}

Graph::~Graph() {
  if (executable_ != nullptr && device_->Bind().ok()) {
    device_->call().graph_exec_destroy(executable_);
  }
}

// ---- Opening ------------------------------------------------------------------------------------

Result<std::shared_ptr<Device>> Device::Open() {
  KVANT_ASSIGN(const Driver driver, Driver::Open());
  if (KernelImage().empty() && !driver.emulates()) {
    return MakeError(
        ErrorCode::kNotSupported,
        "CUDA: this build has no kernels for devices; a build with -DKVANT_CUDA=ON and "
        "nvcc 12 or 13 has them");
  }
  KVANT_ASSIGN(const std::vector<DeviceFacts> devices, driver.Devices());
  if (devices.empty()) return MakeError(ErrorCode::kNotSupported, "CUDA: no device was found");
  const DeviceFacts& facts = devices.front();
  if (facts.major < kOldestMajor || (facts.major == kOldestMajor && facts.minor < kOldestMinor)) {
    return MakeError(ErrorCode::kNotSupported,
                     "CUDA device {}: expected compute capability {}.{} or newer, found {}.{}",
                     facts.name, kOldestMajor, kOldestMinor, facts.major, facts.minor);
  }
  std::shared_ptr<Device> device(new Device(driver, facts));
  KVANT_TRY(device->Start());
  return device;
}

Status Device::Start() {
  KVANT_TRY(driver_.Check(call().device_get(&handle_, 0), "cuDeviceGet"));
  KVANT_TRY(driver_.Check(call().context_retain(&context_, handle_), "cuDevicePrimaryCtxRetain"));
  retained_ = true;
  KVANT_TRY(Bind());
  KVANT_TRY(LoadKernels());
  for (Object& stream : streams_) {
    KVANT_TRY(driver_.Check(call().stream_create(&stream, kNonBlockingStream), "cuStreamCreate"));
  }
  for (Object& event : events_) {
    KVANT_TRY(driver_.Check(call().event_create(&event, kEventWithoutTimes), "cuEventCreate"));
  }
  return {};
}

Status Device::LoadKernels() {
  KVANT_TRY(
      driver_.Check(call().module_load_data(&module_, KernelImage().data()), "cuModuleLoadData"));
  // In the order of Kernel.
  constexpr std::array<const char*, kKernels> kNames = {"kvant_store",
                                                        "kvant_merge",
                                                        "kvant_copy",
                                                        "kvant_spans_64_1",
                                                        "kvant_spans_128_1",
                                                        "kvant_spans_256_1",
                                                        "kvant_spans_64_4",
                                                        "kvant_spans_128_4",
                                                        "kvant_spans_256_4",
                                                        "kvant_hopper_64",
                                                        "kvant_hopper_128",
                                                        "kvant_hopper_256",
                                                        "kvant_hopper_codes_64",
                                                        "kvant_hopper_codes_128",
                                                        "kvant_hopper_codes_256",
                                                        "kvant_latents"};
  for (size_t i = 0; i < kKernels; ++i) {
    KVANT_TRY(driver_.Check(call().module_get_function(&kernels_[i], module_, kNames[i]),
                            "cuModuleGetFunction"));
  }
  for (size_t i = kSpans; i < kKernels; ++i) {
    KVANT_TRY(driver_.Check(
        call().func_set_attribute(kernels_[i], kMaxDynamicSharedBytes, facts_.shared_bytes_max),
        "cuFuncSetAttribute"));
  }
  return {};
}

Device::~Device() {
  if (!retained_) return;
  if (Bind().ok()) {
    for (Object stream : streams_) {
      if (stream != nullptr) call().stream_synchronize(stream);
    }
    for (Object event : events_) {
      if (event != nullptr) call().event_destroy(event);
    }
    for (Object stream : streams_) {
      if (stream != nullptr) call().stream_destroy(stream);
    }
    if (module_ != nullptr) call().module_unload(module_);
  }
  call().context_release(handle_);
}

Status Device::Bind() {
  return driver_.Check(call().context_set_current(context_), "cuCtxSetCurrent");
}

// ---- Memory -------------------------------------------------------------------------------------

Result<uint64_t> Device::FreeBytes() {
  KVANT_TRY(Bind());
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  KVANT_TRY(driver_.Check(call().mem_get_info(&free_bytes, &total_bytes), "cuMemGetInfo_v2"));
  return free_bytes;
}

Result<Memory> Device::Allocate(MemoryKind kind, size_t bytes) {
  KVANT_TRY(Bind());
  if (kind == MemoryKind::kHost) {
    void* memory = nullptr;
    KVANT_TRY(
        driver_.Check(call().mem_host_alloc(&memory, bytes, kHostMemoryMapped), "cuMemHostAlloc"));
    // The device's address is the same with unified addresses, which all devices here have.
    return Memory(shared_from_this(), kind, reinterpret_cast<uintptr_t>(memory), bytes);
  }
  Address address = 0;
  KVANT_TRY(driver_.Check(call().mem_alloc(&address, bytes), "cuMemAlloc_v2"));
  return Memory(shared_from_this(), kind, address, bytes);
}

Result<Pin> Device::PinHost(std::span<std::byte> memory) {
  KVANT_TRY(Bind());
  KVANT_TRY(driver_.Check(call().mem_host_register(memory.data(), memory.size(), kRegisterMapped),
                          "cuMemHostRegister_v2"));
  return Pin(shared_from_this(), memory.data());
}

Status Device::Upload(Stream stream, Address to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  KVANT_TRY(Bind());
  if (!recording_) traffic_.up += bytes;
  return driver_.Check(call().memcpy_to_device(to, from, bytes, StreamOf(stream)),
                       "cuMemcpyHtoDAsync_v2");
}

Status Device::Download(Stream stream, void* to, Address from, size_t bytes) {
  if (bytes == 0) return {};
  KVANT_TRY(Bind());
  if (!recording_) traffic_.down += bytes;
  return driver_.Check(call().memcpy_to_host(to, from, bytes, StreamOf(stream)),
                       "cuMemcpyDtoHAsync_v2");
}

Status Device::Fill(Stream stream, Address to, std::byte value, size_t bytes) {
  KVANT_TRY(Bind());
  return driver_.Check(
      call().memset_d8(to, static_cast<unsigned char>(value), bytes, StreamOf(stream)),
      "cuMemsetD8Async");
}

// ---- Kernels ------------------------------------------------------------------------------------

Status Device::Launch(int kernel, const Grid& grid, int threads, size_t shared_bytes,
                      const void* params) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  if (grid.x > kGridMaxX || grid.y > kGridMax || grid.z > kGridMax) {
    return MakeError(
        ErrorCode::kNotSupported,
        "CUDA: expected a grid of at most {} x {} x {} thread blocks, found {} x {} x {}",
        kGridMaxX, kGridMax, kGridMax, grid.x, grid.y, grid.z);
  }
  KVANT_TRY(Bind());
  void* arguments[] = {const_cast<void*>(params)};
  return driver_.Check(
      call().launch_kernel(kernels_[static_cast<size_t>(kernel)], static_cast<unsigned>(grid.x),
                           static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z),
                           static_cast<unsigned>(threads), 1, 1,
                           static_cast<unsigned>(shared_bytes), StreamOf(Stream::kWork), arguments,
                           nullptr),
      "cuLaunchKernel");
}

Status Device::Store(const StoreParams& params, Grid grid) {
  return Launch(kStore, grid, kThreads, 0, &params);
}

Status Device::Merge(const MergeParams& params, Grid grid) {
  return Launch(kMerge, grid, kMergeThreads, kMergeSharedBytes, &params);
}

Status Device::Copy(const CopyParams& params, Grid grid) {
  return Launch(kCopy, grid, kThreads, 0, &params);
}

SpanLayout Device::LayoutOf(const LayerBlocks& blocks, int tiles) const {
  const bool latent = blocks.key_form == KeyForm::kValueFirst;
  const auto layout = [&](int round) {
    return latent ? LatentLayoutOf(blocks, round) : SpanLayoutOf(blocks, tiles, round);
  };
  int round = latent ? kLatentStages : kRoundMost;
  while (round > 1 && layout(round).bytes > facts_.shared_bytes_max) --round;
  return layout(round);
}

Status Device::CanAttend(const LayerBlocks& blocks) const {
  const bool latent = blocks.key_form == KeyForm::kValueFirst;
  const auto check = [](int dim, int most) -> Status {
    if (dim >= kDimStep && dim <= most && dim % kDimStep == 0) return {};
    return MakeError(ErrorCode::kNotSupported,
                     "CUDA: expected heads of a multiple of {} dimensions up to {}, found {}",
                     kDimStep, most, dim);
  };
  KVANT_TRY(check(blocks.k_dim, kDimMax));
  KVANT_TRY(check(blocks.v_dim, latent ? kLatentMost : kDimMax));
  const SpanLayout layout = LayoutOf(blocks, 4);
  if (layout.bytes <= facts_.shared_bytes_max) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "CUDA device {}: attention of {} and {} dimensions takes {} bytes of shared "
                   "memory, found {}",
                   facts_.name, blocks.k_dim, blocks.v_dim, layout.bytes, facts_.shared_bytes_max);
}

AttentionPlan Device::PlanOf(const LayerBlocks& blocks, int64_t queries, Rows rows) const {
  const auto size_of = [](int dims) { return dims <= 64 ? 0 : dims <= 128 ? 1 : 2; };
  AttentionPlan plan;
  const int size = size_of(std::max(blocks.k_dim, blocks.v_dim));
  const bool latent = blocks.key_form == KeyForm::kValueFirst;
  if (!latent && rows == Rows::kManyOfOneSequence && facts_.major == kHopperMajor &&
      facts_.minor == 0 && HopperBytes(size) <= facts_.shared_bytes_max) {
    const bool codes = blocks.k_type == Element::kInt8 || blocks.v_type == Element::kInt8;
    plan.kernel = (codes ? kHopperCodes : kHopper) + size;
    plan.threads = kHopperThreads;
    plan.block_queries = size < 2 ? HopperLayout<128>::kQueries : HopperLayout<256>::kQueries;
    plan.shared_bytes = static_cast<size_t>(HopperBytes(size));
    return plan;
  }
  // Query vectors of a thread block share what they read.
  const int tiles = latent || (rows == Rows::kFew && queries <= kWarpQueries) ? 1 : 4;
  plan.kernel = latent ? kLatents : (tiles == 1 ? kSpans : kSpans4) + size_of(blocks.v_dim);
  plan.threads = kSpanThreads;
  plan.block_queries = tiles * kWarpQueries;
  const SpanLayout layout = LayoutOf(blocks, tiles);
  plan.round = layout.round;
  plan.shared_bytes = static_cast<size_t>(layout.bytes);
  return plan;
}

Status Device::Attend(AttentionParams params, const AttentionPlan& plan, Grid grid) {
  params.round = plan.round;
  return Launch(plan.kernel, grid, plan.threads, plan.shared_bytes, &params);
}

// ---- Order --------------------------------------------------------------------------------------

Status Device::Record(Stream stream, int event) {
  KVANT_TRY(Bind());
  return driver_.Check(call().event_record(events_[static_cast<size_t>(event)], StreamOf(stream)),
                       "cuEventRecord");
}

Status Device::Follow(Stream stream, int event) {
  KVANT_TRY(Bind());
  return driver_.Check(
      call().stream_wait_event(StreamOf(stream), events_[static_cast<size_t>(event)], 0),
      "cuStreamWaitEvent");
}

Status Device::Wait(int event) {
  KVANT_TRY(Bind());
  return driver_.Check(call().event_synchronize(events_[static_cast<size_t>(event)]),
                       "cuEventSynchronize");
}

Status Device::Wait(Stream stream) {
  KVANT_TRY(Bind());
  return driver_.Check(call().stream_synchronize(StreamOf(stream)), "cuStreamSynchronize");
}

Status Device::BeginRecording() {
  KVANT_TRY(Bind());
  KVANT_TRY(driver_.Check(call().stream_begin_capture(StreamOf(Stream::kWork), kCaptureOfThread),
                          "cuStreamBeginCapture_v2"));
  recording_ = true;
  return {};
}

Result<Graph> Device::EndRecording() {
  recording_ = false;
  KVANT_TRY(Bind());
  Object graph = nullptr;
  KVANT_TRY(driver_.Check(call().stream_end_capture(StreamOf(Stream::kWork), &graph),
                          "cuStreamEndCapture"));
  Object executable = nullptr;
  const auto made = call().graph_instantiate(&executable, graph, 0);
  call().graph_destroy(graph);
  KVANT_TRY(driver_.Check(made, "cuGraphInstantiateWithFlags"));
  return Graph(shared_from_this(), executable);
}

Status Device::Run(const Graph& graph) {
  KVANT_TRY(Bind());
  return driver_.Check(call().graph_launch(graph.executable_, StreamOf(Stream::kWork)),
                       "cuGraphLaunch");
}

}  // namespace kvant::cuda
