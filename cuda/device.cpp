// Calls of the driver for one device, through the context that all of the process share.
#include "cuda/device.h"

#include <cstring>
#include <string>

#include "cuda/kernel_image.h"

namespace kvant::cuda {
namespace {

// Of cuda.h.
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kEventWithoutTimes = 2;
constexpr unsigned kHostMemoryMapped = 2;  // CU_MEMHOSTALLOC_DEVICEMAP
constexpr unsigned kRegisterMapped = 2;    // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr int kCaptureOfThread = 1;        // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

constexpr int kOldestMajor = 7;
constexpr int kOldestMinor = 5;

// The most thread blocks of the second and third dimension.
constexpr int64_t kGridMax = 65535;
constexpr int64_t kGridMaxX = 2147483647;

constexpr int kStagesMax = 2;
constexpr int kDimMax = 256;
constexpr int kDimStep = 8;

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
    return MakeError(ErrorCode::kNotSupported,
                     "CUDA: this build has no kernels for devices; it was made without nvcc 12 or "
                     "13 (-DKVANT_CUDA=ON asks for them)");
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
  constexpr std::array<const char*, kKernels> kNames = {
      "kvant_store",        "kvant_merge",         "kvant_copy",
      "kvant_attention_64", "kvant_attention_128", "kvant_attention_256"};
  for (size_t i = 0; i < kKernels; ++i) {
    KVANT_TRY(driver_.Check(call().module_get_function(&kernels_[i], module_, kNames[i]),
                            "cuModuleGetFunction"));
  }
  for (size_t i = kAttention64; i < kKernels; ++i) {
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
    // With unified addresses, which all devices here have, the device's address is the same.
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

Status Device::Launch(Kernel kernel, const Grid& grid, size_t shared_bytes, const void* params) {
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
      call().launch_kernel(kernels_[kernel], static_cast<unsigned>(grid.x),
                           static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z), kThreads,
                           1, 1, static_cast<unsigned>(shared_bytes), StreamOf(Stream::kWork),
                           arguments, nullptr),
      "cuLaunchKernel");
}

Status Device::Store(const StoreParams& params, Grid grid) {
  return Launch(kStore, grid, 0, &params);
}

Status Device::Merge(const MergeParams& params, Grid grid) {
  return Launch(kMerge, grid, 0, &params);
}

Status Device::Copy(const CopyParams& params, Grid grid) { return Launch(kCopy, grid, 0, &params); }

int Device::StagesOf(const SharedLayout& layout) const {
  int stages = kStagesMax;
  while (stages > 0 && layout.bytes(stages) > static_cast<uint32_t>(facts_.shared_bytes_max)) {
    --stages;
  }
  return stages;
}

Status Device::CanAttend(const LayerBlocks& blocks) const {
  for (const int dim : {blocks.k_dim, blocks.v_dim}) {
    if (dim >= kDimStep && dim <= kDimMax && dim % kDimStep == 0) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "CUDA: expected heads of a multiple of {} dimensions up to {}, found {}",
                     kDimStep, kDimMax, dim);
  }
  const SharedLayout layout = LayoutOf(blocks);
  if (StagesOf(layout) > 0) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "CUDA device {}: attention of {} and {} dimensions takes {} bytes of shared "
                   "memory, found {}",
                   facts_.name, blocks.k_dim, blocks.v_dim, layout.bytes(1),
                   facts_.shared_bytes_max);
}

Status Device::Attend(AttentionParams params, Grid grid) {
  const SharedLayout layout = LayoutOf(params.blocks);
  params.stages = StagesOf(layout);
  const Kernel kernel = params.blocks.v_dim <= 64    ? kAttention64
                        : params.blocks.v_dim <= 128 ? kAttention128
                                                     : kAttention256;
  return Launch(kernel, grid, layout.bytes(params.stages), &params);
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
