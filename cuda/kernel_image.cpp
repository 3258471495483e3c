// Puts the file that nvcc has made (cmake/cuda.cmake) into the library as it is.
#include "cuda/kernel_image.h"

#ifdef KVANT_CUDA_IMAGE
__asm__(
    ".pushsection .rodata, \"a\"\n"
    ".balign 64\n"
    ".hidden kvant_cuda_image\n"
    ".globl kvant_cuda_image\n"
    "kvant_cuda_image:\n"
    ".incbin \"" KVANT_CUDA_IMAGE
    "\"\n"
    ".hidden kvant_cuda_image_end\n"
    ".globl kvant_cuda_image_end\n"
    "kvant_cuda_image_end:\n"
    ".popsection\n");
extern "C" const std::byte kvant_cuda_image[];
extern "C" const std::byte kvant_cuda_image_end[];
#endif

namespace kvant::cuda {

std::span<const std::byte> KernelImage() {
#ifdef KVANT_CUDA_IMAGE
  return {kvant_cuda_image, kvant_cuda_image_end};
#else
  return {};
#endif
}

}  // namespace kvant::cuda
