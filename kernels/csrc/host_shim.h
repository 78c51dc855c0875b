// Just enough CUDA for g++ to run block_move.cu on the CPU, one thread after another. It shows that every byte goes where
// it belongs and that wide accesses are aligned; it shows nothing about races between threads or about speed.
#pragma once

#define __device__ static
#define __global__
#define __grid_constant__
#define __launch_bounds__(threads)

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct Position {
  unsigned x;
};
static thread_local Position blockIdx, threadIdx, gridDim;

// A GPU does not forgive a misaligned access: count them instead of making them, so that a test can say so.
static thread_local long long misaligned_accesses;

template <class Word>
static bool misaligned(const Word* address) {
  const bool found = reinterpret_cast<unsigned long long>(address) % sizeof(Word) != 0;
  misaligned_accesses += found;
  return found;
}

template <class Word>
static Word __ldcs(const Word* from) {
  return misaligned(from) ? Word{} : *from;
}

template <class Word>
static void __stwb(Word* to, Word value) {
  if (!misaligned(to)) *to = value;
}

template <class Kernel>
static long long run_grid(unsigned blocks, unsigned threads, Kernel kernel) {
  misaligned_accesses = 0;
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
  return misaligned_accesses;
}
