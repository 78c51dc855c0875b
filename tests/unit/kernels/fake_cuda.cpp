// A CUDA driver that does everything at once, in host memory. Built against the real cuda.h, so that the compiler checks
// every prototype that the Python layer calls by; kernels are the CPU build of block_move.cu.
#include <cuda.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "host_entry.cpp"

namespace {
const int kCapability[2] = {9, 0};
int live = 0;  // streams, events, allocations, modules, contexts

struct FakeEvent {
  std::chrono::steady_clock::time_point at;
};

template <class Handle>
CUresult make(Handle* handle, void* object) {
  ++live;
  *handle = static_cast<Handle>(object);
  return CUDA_SUCCESS;
}

CUresult drop(void* object) {
  --live;
  std::free(object);
  return CUDA_SUCCESS;
}
}  // namespace

extern "C" {

int fake_next_error = 0;  // what the next copy, query or launch returns
int fake_batches = 0;
int fake_live() { return live; }

static CUresult next_error() {
  const int error = fake_next_error;
  fake_next_error = 0;
  return CUresult(error);
}

CUresult cuInit(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "Fake GPU", size_t(length));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = kCapability[0]; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = kCapability[1]; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return make(context, std::malloc(1)); }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return drop(nullptr); }
CUresult cuCtxSetCurrent(CUcontext context) { return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }

CUresult cuMemAlloc(CUdeviceptr* address, size_t size) {
  void* memory = std::aligned_alloc(256, (size + 255) / 256 * 256);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  ++live;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) { return drop(reinterpret_cast<void*>(address)); }

CUresult cuMemHostAlloc(void** address, size_t size, unsigned flags) {
  if (flags != CU_MEMHOSTALLOC_PORTABLE) return CUDA_ERROR_INVALID_VALUE;
  if (size > (size_t(1) << 40)) return CUDA_ERROR_OUT_OF_MEMORY;
  return make(address, std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
}
CUresult cuMemFreeHost(void* address) { return drop(address); }

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return make(stream, std::malloc(1));
}
CUresult cuStreamDestroy(CUstream stream) { return drop(stream); }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream, CUevent event, unsigned flags) {
  return event && flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;  // stream null: the default stream
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  if (flags != CU_EVENT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return make(event, std::calloc(1, sizeof(FakeEvent)));
}
CUresult cuEventDestroy(CUevent event) { return drop(event); }
CUresult cuEventRecord(CUevent event, CUstream) {
  reinterpret_cast<FakeEvent*>(event)->at = std::chrono::steady_clock::now();
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent) { return next_error(); }
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  const auto between = reinterpret_cast<FakeEvent*>(end)->at - reinterpret_cast<FakeEvent*>(start)->at;
  *milliseconds = std::chrono::duration<float, std::milli>(between).count();
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
  return next_error();
}

static CUresult batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
                      size_t* first, size_t attribute_count, CUstream stream) {
  const bool valid = attribute_count == 1 && first[0] == 0 && count > 0 && stream && attributes->flags == 0 &&
                     attributes->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  ++fake_batches;
  for (size_t i = 0; i < count; ++i) cuMemcpyAsync(to[i], from[i], sizes[i], stream);
  return CUDA_SUCCESS;
}

#if BATCH_OF_CUDA == 13
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
                            size_t* first, size_t attribute_count, CUstream stream) {
  return batch(to, from, sizes, count, attributes, first, attribute_count, stream);
}
#elif BATCH_OF_CUDA == 12
#undef cuMemcpyBatchAsync
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
                            size_t* first, size_t attribute_count, size_t* failed, CUstream stream) {
  *failed = 0;
  return batch(to, from, sizes, count, attributes, first, attribute_count, stream);
}
#endif

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, "\x7f" "ELF", 4) != 0) return CUDA_ERROR_INVALID_IMAGE;
  return make(module, std::malloc(1));
}
CUresult cuModuleUnload(CUmodule module) { return drop(module); }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  auto* kernel = std::strcmp(name, "gather_blocks") == 0    ? &host_gather_blocks
                 : std::strcmp(name, "scatter_blocks") == 0 ? &host_scatter_blocks
                                                            : nullptr;
  *function = reinterpret_cast<CUfunction>(kernel);
  return kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** arguments, void** extra) {
  const bool flat = grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1 && shared == 0 && !extra;
  if (!flat || !stream || block_x != kThreads || grid_x == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto kernel = reinterpret_cast<decltype(&host_gather_blocks)>(function);
  return kernel(grid_x, block_x, arguments) == 0 ? next_error() : CUDA_ERROR_MISALIGNED_ADDRESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : nullptr;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
