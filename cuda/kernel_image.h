// The kernels of this build, compiled for devices.
#pragma once

#include <cstddef>
#include <span>

namespace kvant::cuda {

// The image that cuModuleLoadData takes: machine code for several compute capabilities, and PTX for
// newer ones. Empty in a build without KVANT_CUDA.
std::span<const std::byte> KernelImage();

}  // namespace kvant::cuda
