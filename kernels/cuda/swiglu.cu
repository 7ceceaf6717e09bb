// The gate of the feed-forward layer.
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 256;

// out = silu(x[:, ..width]) * x[:, width..]; eight values per thread.
DEVICE void swiglu(const SwigluParams &p) {
    const int units = p.width / 8;
    const int i = block_x() * THREADS + thread_index();
    if (i >= units) return;
    const long long row = block_y();
    const Floats8 gate = widen(load<Bytes16>(p.x, row * 2 * units + i));
    const Floats8 up = widen(load<Bytes16>(p.x, row * 2 * units + units + i));
    Floats8 y;
#pragma unroll
    for (int j = 0; j < 8; j++) y.at[j] = silu(gate.at[j]) * up.at[j];
    store<Bytes16>(p.out, row * units + i, narrow(y));
}

KERNEL(swiglu_rows, THREADS, 1, 0, SwigluParams, swiglu)
