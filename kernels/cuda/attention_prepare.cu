// Head norms, rotation, and the cache: queries into a buffer, keys and values into their places; and
// moving the kept rows' keys and values behind the committed context.
#include "kept.cuh"

constexpr int WARPS = 4;
constexpr int COMMIT_THREADS = 64;

// One lane's part of a head: HEAD / 32 values side by side.
template <int HEAD>
struct Part {
    static constexpr int SIZE = HEAD / 32;
    float at[SIZE];
};

DEVICE Part<128> load_part(const void *base, long long unit, Part<128> *) {
    const Float4 x = widen(load<Bytes8>(base, unit));
    return Part<128>{{x.at[0], x.at[1], x.at[2], x.at[3]}};
}

DEVICE Part<256> load_part(const void *base, long long unit, Part<256> *) {
    const Floats8 x = widen(load<Bytes16>(base, unit));
    Part<256> y;
#pragma unroll
    for (int i = 0; i < 8; i++) y.at[i] = x.at[i];
    return y;
}

DEVICE void store_part(void *base, long long unit, const Part<128> &x) {
    store<Bytes8>(base, unit, narrow(Float4{{x.at[0], x.at[1], x.at[2], x.at[3]}}));
}

DEVICE void store_part(void *base, long long unit, const Part<256> &x) {
    Floats8 y;
#pragma unroll
    for (int i = 0; i < 8; i++) y.at[i] = x.at[i];
    store<Bytes16>(base, unit, narrow(y));
}

// Products are f32, as in the references; the turns beyond a circle are taken off in f64.
DEVICE void turn(float position, float frequency, float scale, float &sine, float &cosine) {
    const double angle = (double)(position * frequency);
    const double circle = 6.283185307179586;
    const double circles = rint(angle * (1.0 / circle));
    fast_sincos((float)(angle - circles * circle), sine, cosine);
    sine *= scale;
    cosine *= scale;
}

template <int HEAD>
DEVICE void norm_and_rotate(Part<HEAD> &x, const AttentionPrepareParams &p, const void *norm,
                            int position) {
    constexpr int SIZE = Part<HEAD>::SIZE;
    const int lane = thread_index() % 32;
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < SIZE; i++) squares += x.at[i] * x.at[i];
    const float scale = 1.0f / sqrtf(warp_sum(squares) / HEAD + p.eps);
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        const int at = lane * SIZE + i;
        const float w = p.weight_f32 ? load<float>(norm, at) : to_float(load<bf16>(norm, at));
        x.at[i] *= scale * (p.shift + w);
    }
    // The partner of value i lies half the rotated part away, in the lane `reach` away.
    const int half = p.rotary_dim / 2, reach = half / SIZE;
    const bool first = lane < reach, rotated = lane < 2 * reach;
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        const float partner = shuffle_xor(x.at[i], reach);
        if (rotated) {
            float sine, cosine;
            const int pair = (first ? lane : lane - reach) * SIZE + i;
            turn((float)position, p.inv_freq[pair], p.rope_scale, sine, cosine);
            x.at[i] = x.at[i] * cosine + (first ? -partner : partner) * sine;
        }
    }
}

// One warp per (row, head): the query heads, the key heads, the value heads.
// Grid: (heads / WARPS, rows).
template <int HEAD>
DEVICE void attention_prepare(const AttentionPrepareParams &p) {
    const int lane = thread_index() % 32, row = block_y();
    const int head = block_x() * WARPS + thread_index() / 32;
    // Tables are copied ahead of all kernels of a pass.
    const int position = p.tables.row_position[row];
    const long long place = (long long)p.tables.row_place[row] * p.kv_heads;
    wait_for_earlier();
    if (head >= p.heads + 2 * p.kv_heads) return;
    const int span = p.gated ? 2 : 1;  // heads in the projection per query head
    const long long stride = p.heads * span + 2 * p.kv_heads;
    const bool query = head < p.heads;
    const int from = query ? head * span : p.heads * span + head - p.heads;
    Part<HEAD> x = load_part(p.proj, (row * stride + from) * 32 + lane, (Part<HEAD> *)nullptr);
    if (query) {
        norm_and_rotate(x, p, p.q_norm, position);
        store_part(p.q, ((long long)row * p.heads + head) * 32 + lane, x);
        return;
    }
    const int kv = head - p.heads;
    if (kv < p.kv_heads) {
        norm_and_rotate(x, p, p.k_norm, position);
        store_part(p.keys, (place + kv) * 32 + lane, x);
    } else {
        store_part(p.values, (place + kv - p.kv_heads) * 32 + lane, x);
    }
}

// A thread moves eight values of every kept row, in path order: a kept row never moves backwards, so
// nothing that is still needed is overwritten. Grid: (width, segments).
DEVICE void kv_commit(const KvCommitParams &p) {
    const Segment segment = p.tables.segments[block_y()];
    const int units = p.width / 8, unit = block_x() * COMMIT_THREADS + thread_index();
    if (unit >= units) return;
    const Kept kept = kept_of(p.tables, block_y(), segment.first);
    for (int i = 0; i < kept.count; i++) {
        const int row = kept.rows[i];
        if (row == i) continue;
        const long long from = (long long)p.tables.row_place[segment.first + row] * units + unit;
        const long long to = (long long)p.tables.row_place[segment.first + i] * units + unit;
        store<Bytes16>(p.keys, to, load<Bytes16>(p.keys, from));
        store<Bytes16>(p.values, to, load<Bytes16>(p.values, from));
    }
}

#define PREPARE(head)                                                                              \
    KERNEL_AHEAD(attention_prepare_##head, WARPS * 32, 1, 0, AttentionPrepareParams,               \
                 attention_prepare<head>)

PREPARE(128)
PREPARE(256)
KERNEL(kv_commit_rows, COMMIT_THREADS, 1, 0, KvCommitParams, kv_commit)
