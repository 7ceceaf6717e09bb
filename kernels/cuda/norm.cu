// RMS norms of whole rows and of heads, and the residual sum.
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 256;
// Units of a row that a thread keeps in registers.
constexpr int KEPT = NORM_WIDTH / 8 / THREADS;

struct NormShared {
    float sums[THREADS / 32];
};

// Sum over the block, the same bits in each thread.
DEVICE float block_sum(float x, NormShared &shared) {
    x = warp_sum(x);
    if (thread_index() % 32 == 0) shared.sums[thread_index() / 32] = x;
    sync_block();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) sum += shared.sums[i];
    return sum;
}

DEVICE Floats8 load_weight(const void *weight, bool f32, int i) {
    if (!f32) return widen(load<Bytes16>(weight, i));
    const Float4 a = load<Float4>(weight, 2 * i), b = load<Float4>(weight, 2 * i + 1);
    Floats8 w;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        w.at[j] = a.at[j];
        w.at[4 + j] = b.at[j];
    }
    return w;
}

// One block per row. With a residual: residual += x first, and the norm is that of the sum as it is
// stored.
template <bool residual, bool norm>
DEVICE void rms_norm(const NormParams &p) {
    const int units = p.width / 8, mine = thread_index();
    const long long row = (long long)block_x() * units;
    Floats8 x[KEPT], w[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (norm && mine + k * THREADS < units)
            w[k] = load_weight(p.weight, p.weight_f32 != 0, mine + k * THREADS);
    wait_for_earlier();
    Bytes16 loaded[KEPT], before[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = mine + k * THREADS;
        if (i < units) loaded[k] = load<Bytes16>(p.x, row + i);
        if (residual && i < units) before[k] = load<Bytes16>(p.residual, row + i);
    }
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = mine + k * THREADS;
        if (i >= units) continue;
        x[k] = widen(loaded[k]);
        if (residual) {
            const Floats8 added = widen(before[k]);
#pragma unroll
            for (int j = 0; j < 8; j++) x[k].at[j] += added.at[j];
            const Bytes16 sum = narrow(x[k]);
            store<Bytes16>(p.residual, row + i, sum);
            x[k] = widen(sum);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) squares += x[k].at[j] * x[k].at[j];
    }
    if (!norm) return;
    const float mean = block_sum(squares, shared_as<NormShared>()) / (float)p.width;
    const float scale = 1.0f / sqrtf(mean + p.eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = mine + k * THREADS;
        if (i >= units) continue;
#pragma unroll
        for (int j = 0; j < 8; j++) x[k].at[j] *= scale * (p.shift + w[k].at[j]);
        store<Bytes16>(p.out, row + i, narrow(x[k]));
    }
}

// One warp per (row, value head): out = norm(x) * w * silu(z).
DEVICE void gated_norm(const GatedNormParams &p) {
    const int task = block_x() * (THREADS / 32) + thread_index() / 32;
    if (task >= p.rows * p.heads) return;
    const int lane = thread_index() % 32, row = task / p.heads, head = task % p.heads;
    const long long at = (long long)task * (GDN_DIM / 4) + lane;
    const Float4 x = widen(load<Bytes8>(p.x, at));
    const bf16 *gate = reinterpret_cast<const bf16 *>(p.gate) + (long long)row * p.gate_stride;
    const Float4 z =
        widen(load_row<Bytes8>(gate, head * (GDN_DIM / 4) + lane, p.gate_stride % 8 == 0));
    const Float4 w = p.weight_f32 ? load<Float4>(p.weight, lane)
                                  : widen(load<Bytes8>(p.weight, lane));
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) squares += x.at[j] * x.at[j];
    const float scale = 1.0f / sqrtf(warp_sum(squares) / GDN_DIM + p.eps);
    Float4 y;
#pragma unroll
    for (int j = 0; j < 4; j++) y.at[j] = x.at[j] * scale * w.at[j] * silu(z.at[j]);
    store<Bytes8>(p.out, at, narrow(y));
}

KERNEL_AHEAD(rms_norm_rows, THREADS, 1, sizeof(NormShared), NormParams, rms_norm<false, true>)
KERNEL_AHEAD(add_rms_norm_rows, THREADS, 1, sizeof(NormShared), NormParams, rms_norm<true, true>)
KERNEL_AHEAD(add_rows, THREADS, 1, 0, NormParams, rms_norm<true, false>)
KERNEL(gated_norm_heads, THREADS, 1, 0, GatedNormParams, gated_norm)
