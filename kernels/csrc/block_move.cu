// Moves KV blocks between the tensors of a cache, where a block lies scattered in one fragment per tensor, and a staging
// slab, where it lies in one piece. Compiled by NVRTC for the GPU at hand, and by g++ through host_shim.h for tests.
//
// Rules that keep both builds one source: no includes, no barriers, no shared memory, no warp operations; every access
// to cache and staging goes through load() and store(), so that the host build can check its alignment.

namespace {

using Byte = unsigned char;
using Address = unsigned long long;
using Size = long long;

constexpr int kThreads = 128;         // threads of a thread block
constexpr int kWordsPerThread = 4;    // 16-byte loads in flight per thread, before the first store
constexpr int kTileWords = kThreads * kWordsPerThread;
constexpr Size kWordBytes = 16;
constexpr Size kTileBytes = kTileWords * kWordBytes;  // 8 KiB: what a thread block moves in one go
constexpr int kMaxBlocks = 960;       // ids travel as kernel arguments, of which every driver takes 4 KiB

}  // namespace

// One tensor of the cache: block i has its fragment at base + i * block_stride.
struct alignas(16) Region {
  Address base;
  Size block_stride;
  Size fragment_bytes;
  Size staging_offset;  // of this tensor's fragment in a staged block; a multiple of 16
};

struct BlockIds {
  int at[kMaxBlocks];
};

namespace {

// What is read is not read again soon: evict first. What is written is read next, by the bus or by the model.
template <class Word>
__device__ Word load(const Word* from) {
  return __ldcs(from);
}

template <class Word>
__device__ void store(Word* to, Word value) {
  __stwb(to, value);
}

// Moves `bytes` (at most kTileBytes) with all threads of a thread block.
__device__ void move_tile(const Byte* from, Byte* to, int bytes) {
  const int thread = int(threadIdx.x);
  if (((Address(from) | Address(to)) & Address(kWordBytes - 1)) != 0) {
#pragma unroll 1
    for (int i = thread; i < bytes; i += kThreads) store(to + i, load(from + i));
    return;
  }
  const int words = bytes / int(kWordBytes);
  const uint4* wide_from = reinterpret_cast<const uint4*>(from);
  uint4* wide_to = reinterpret_cast<uint4*>(to);
  uint4 held[kWordsPerThread];
#pragma unroll
  for (int k = 0; k < kWordsPerThread; ++k) {
    const int i = thread + k * kThreads;
    if (i < words) held[k] = load(wide_from + i);
  }
#pragma unroll
  for (int k = 0; k < kWordsPerThread; ++k) {
    const int i = thread + k * kThreads;
    if (i < words) store(wide_to + i, held[k]);
  }
  const int rest = words * int(kWordBytes) + thread;  // at most 15 bytes are left
  if (rest < bytes) store(to + rest, load(from + rest));
}

// The tiles of all fragments are dealt out to the thread blocks in turn: tile fastest, then tensor, then block.
template <bool kGather>
__device__ void move_blocks(const Region* regions, int region_count, int tiles_per_fragment, Address staging,
                            Size staged_block_bytes, int block_count, const BlockIds& ids) {
  const int total = block_count * region_count * tiles_per_fragment;
  for (int item = int(blockIdx.x); item < total; item += int(gridDim.x)) {
    const int fragment = item / tiles_per_fragment;
    const int block = fragment / region_count;
    const Region region = regions[fragment % region_count];
    const Size start = Size(item % tiles_per_fragment) * kTileBytes;
    const Size left = region.fragment_bytes - start;
    if (left <= 0) continue;  // a tensor whose fragments are smaller than the largest
    const Address cached = region.base + Address(ids.at[block] * region.block_stride + start);
    const Address staged = staging + Address(block * staged_block_bytes + region.staging_offset + start);
    const Address from = kGather ? cached : staged;
    const Address to = kGather ? staged : cached;
    move_tile(reinterpret_cast<const Byte*>(from), reinterpret_cast<Byte*>(to), int(left < kTileBytes ? left : kTileBytes));
  }
}

}  // namespace

// `regions` and `staging` are device addresses. No bounds are checked here: the wrapper in mover.py owns them.
extern "C" __global__ void __launch_bounds__(kThreads)
gather_blocks(const Region* regions, int region_count, int tiles_per_fragment, Address staging, Size staged_block_bytes,
              int block_count, const __grid_constant__ BlockIds ids) {
  move_blocks<true>(regions, region_count, tiles_per_fragment, staging, staged_block_bytes, block_count, ids);
}

extern "C" __global__ void __launch_bounds__(kThreads)
scatter_blocks(const Region* regions, int region_count, int tiles_per_fragment, Address staging, Size staged_block_bytes,
               int block_count, const __grid_constant__ BlockIds ids) {
  move_blocks<false>(regions, region_count, tiles_per_fragment, staging, staged_block_bytes, block_count, ids);
}
