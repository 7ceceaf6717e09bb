// The types and instructions that the kernels are written in: CUDA's own, or on a machine without a
// GPU their emulation (kernels/cuda/emulate).
#pragma once

#ifdef VOLLEY_EMULATE
#include "emulate/device.hpp"
#else
#include "native.cuh"
#endif

// Bits of a bfloat16.
struct bf16 {
    unsigned short bits;
};

// Sixteen bytes: what one thread loads or stores at once.
struct __align__(16) Bytes16 {
    unsigned word[4];
};

struct __align__(16) Float4 {
    float at[4];
};

struct __align__(8) Float2 {
    float at[2];
};

DEVICE float to_float(bf16 x) { return bits_to_float((unsigned)x.bits << 16); }

// Round to nearest even; `lo` is the first in memory.
DEVICE unsigned pack(float lo, float hi) { return round_pair(lo, hi); }

DEVICE bf16 to_bf16(float x) { return bf16{(unsigned short)(round_pair(x, 0.0f) & 0xffffu)}; }

DEVICE float low_half(unsigned pair) { return bits_to_float(pair << 16); }
DEVICE float high_half(unsigned pair) { return bits_to_float(pair & 0xffff0000u); }

// Eight bf16 as floats.
struct Floats8 {
    float at[8];
};

DEVICE Floats8 widen(Bytes16 x) {
    Floats8 y;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        y.at[2 * i] = low_half(x.word[i]);
        y.at[2 * i + 1] = high_half(x.word[i]);
    }
    return y;
}

DEVICE Bytes16 narrow(const Floats8 &x) {
    Bytes16 y;
#pragma unroll
    for (int i = 0; i < 4; i++) y.word[i] = pack(x.at[2 * i], x.at[2 * i + 1]);
    return y;
}

// Four bf16 (8 bytes) as floats, and back.
struct __align__(8) Bytes8 {
    unsigned word[2];
};

DEVICE Float4 widen(Bytes8 x) {
    return Float4{{low_half(x.word[0]), high_half(x.word[0]), low_half(x.word[1]),
                   high_half(x.word[1])}};
}

DEVICE Bytes8 narrow(const Float4 &x) {
    return Bytes8{{pack(x.at[0], x.at[1]), pack(x.at[2], x.at[3])}};
}

template <class T>
DEVICE T load(const void *base, long long index) {
    return reinterpret_cast<const T *>(base)[index];
}

template <class T>
DEVICE void store(void *base, long long index, T value) {
    reinterpret_cast<T *>(base)[index] = value;
}

// Unit `unit` of a row of bf16 that begins at an even element; rows that begin at 16 bytes are
// `aligned`.
template <class T>
DEVICE T load_row(const bf16 *row, int unit, bool aligned) {
    if (aligned) return load<T>(row, unit);
    constexpr int WORDS = sizeof(T) / 4;
    T x;
#pragma unroll
    for (int i = 0; i < WORDS; i++) x.word[i] = load<unsigned>(row, unit * WORDS + i);
    return x;
}

constexpr float LOG2_E = 1.4426950408889634f;

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }

// Sum over the 32 lanes, the same bits in each.
DEVICE float warp_sum(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += shuffle_xor(x, lanes);
    return x;
}

DEVICE float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, shuffle_xor(x, lanes));
    return x;
}

DEVICE int ceil_div(int a, int b) { return (a + b - 1) / b; }
DEVICE int min_of(int a, int b) { return a < b ? a : b; }
DEVICE int max_of(int a, int b) { return a > b ? a : b; }
