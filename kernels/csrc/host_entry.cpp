// Entry points of the host build. Each takes what the driver's launch takes, the arguments as an array of pointers, and
// returns how many accesses were misaligned.
#include "host_shim.h"

#include "block_move.cu"

template <class Kernel>
static long long launch(Kernel kernel, unsigned blocks, unsigned threads, void** arguments) {
  auto* regions = *static_cast<const Region**>(arguments[0]);
  int region_count = *static_cast<int*>(arguments[1]);
  int tiles_per_fragment = *static_cast<int*>(arguments[2]);
  auto staging = *static_cast<Address*>(arguments[3]);
  auto staged_block_bytes = *static_cast<Size*>(arguments[4]);
  int block_count = *static_cast<int*>(arguments[5]);
  const auto& ids = *static_cast<BlockIds*>(arguments[6]);
  return run_grid(blocks, threads, [&] {
    kernel(regions, region_count, tiles_per_fragment, staging, staged_block_bytes, block_count, ids);
  });
}

extern "C" long long host_gather_blocks(unsigned blocks, unsigned threads, void** arguments) {
  return launch([](auto&... a) { gather_blocks(a...); }, blocks, threads, arguments);
}

extern "C" long long host_scatter_blocks(unsigned blocks, unsigned threads, void** arguments) {
  return launch([](auto&... a) { scatter_blocks(a...); }, blocks, threads, arguments);
}
