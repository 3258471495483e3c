/* What cuda/driver.cpp takes for NVIDIA's driver in tests: two devices, and an error at whichever
   call the test wishes. The signatures are those of cuda.h, written anew. */
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int calls = 0;
static int fail_at = 0; /* the number of the call that fails, from 1; 0: none does */
static int devices = 2;

EXPORT void FakeDriverBegin(int failing_call, int device_count) {
  calls = 0;
  fail_at = failing_call;
  devices = device_count;
}
EXPORT int FakeDriverCalls(void) { return calls; }

static int Result(void) { return ++calls == fail_at ? 999 : 0; }

EXPORT int cuInit(unsigned flags) {
  if (flags != 0) return 1;
  return Result();
}
EXPORT int cuDriverGetVersion(int *version) {
  *version = 12040;
  return Result();
}
EXPORT int cuGetErrorName(int code, const char **name) {
  *name = code == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
  return *name == NULL;
}
EXPORT int cuDeviceGetCount(int *count) {
  *count = devices;
  return Result();
}
EXPORT int cuDeviceGet(int *device, int number) {
  *device = 100 + number; /* a handle need not be the number */
  return Result();
}
EXPORT int cuDeviceGetName(char *name, int size, int device) {
  if (device < 100) return 101;
  strncpy(name, device == 100 ? "Large Card" : "Small Card", (size_t)size);
  return Result();
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const int large = device == 100;
  switch (attribute) {
    case 16: *value = large ? 132 : 40; break;
    case 75: *value = large ? 9 : 7; break;
    case 76: *value = large ? 0 : 5; break;
    default: return 1;
  }
  return Result();
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = (size_t)(device == 100 ? 80 : 16) << 30;
  return Result();
}
