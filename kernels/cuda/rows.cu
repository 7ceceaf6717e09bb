// Small uploads. Moving rows: embedding, gather, copies into columns; and filling a matrix with noise.
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 256;

// out[i] = from[index[i] - first], zeros outside; an index may be one that was drawn. One block per row.
template <class Unit>
DEVICE void gather(const GatherParams &p) {
    unsigned index = p.index[block_x()];
    if (p.drawn && (index & DRAWN)) index = (unsigned)p.drawn[2 * (index ^ DRAWN)];
    const unsigned row = index - p.first;
    const long long out = (long long)block_x() * p.row_units;
    const long long from = (long long)row * p.row_units;
    for (int i = thread_index(); i < p.row_units; i += THREADS) {
        const Unit value = row < p.limit ? load<Unit>(p.from, from + i) : Unit{};
        store<Unit>(p.out, out + i, value);
    }
}

// One block per row.
template <class Unit>
DEVICE void copy_columns(const CopyParams &p) {
    const long long from = (long long)block_x() * p.row_units;
    const long long out = (long long)block_x() * p.out_units + p.out_column;
    for (int i = thread_index(); i < p.row_units; i += THREADS)
        store<Unit>(p.out, out + i, load<Unit>(p.from, from + i));
}

// Numbers between -scale and scale that depend on the seed and the place only.
DEVICE void noise(const NoiseParams &p) {
    const long long units = p.values / 8, step = (long long)grid_x() * THREADS;
    for (long long i = (long long)block_x() * THREADS + thread_index(); i < units; i += step) {
        Floats8 x;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            unsigned bits = (unsigned)(8 * i + j) * 0x9e3779b9u ^ p.seed;
            bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
            bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
            x.at[j] = p.scale * ((float)(bits >> 8) * (1.0f / (1 << 23)) - 1.0f);
        }
        store<Bytes16>(p.out, i, narrow(x));
    }
}

// Reads all of it, to see how fast that is; what is written depends on every bit.
DEVICE void read_values(const ReadParams &p) {
    const long long step = (long long)grid_x() * THREADS;
    unsigned mixed = 0;
#pragma unroll 8
    for (long long i = (long long)block_x() * THREADS + thread_index(); i < p.units; i += step) {
        const Bytes16 x = load<Bytes16>(p.from, i);
        mixed ^= x.word[0] ^ x.word[1] ^ x.word[2] ^ x.word[3];
    }
    if (mixed == 0x9e3779b9u) store<unsigned>(p.out, thread_index(), mixed);
}

// Words that the parameters bring along.
template <class Params>
DEVICE void write_words(const Params &p) {
    const int i = block_x() * THREADS + thread_index();
    if (i < p.words) store<unsigned>(p.to, i, p.data[i]);
}

// Words on their way to the host: one kernel leaves less of a gap than a copy of each part.
DEVICE void land_words(const LandParams &p) {
    const int i = block_x() * THREADS + thread_index();
    int first = 0;
    for (int part = 0; part < LAND_PARTS; part++) {
        if (i >= first && i < p.ends[part]) store<unsigned>(p.to, i, load<unsigned>(p.from[part], i - first));
        first = p.ends[part];
    }
}

KERNEL(land_words_of_parts, THREADS, 1, 0, LandParams, land_words)
KERNEL(write_words_small, THREADS, 1, 0, SmallWriteParams, write_words<SmallWriteParams>)
KERNEL(write_words_large, THREADS, 1, 0, LargeWriteParams, write_words<LargeWriteParams>)
KERNEL(noise_values, THREADS, 1, 0, NoiseParams, noise)
KERNEL(read_values_all, THREADS, 1, 0, ReadParams, read_values)
KERNEL(gather_16, THREADS, 1, 0, GatherParams, gather<Bytes16>)
KERNEL(gather_2, THREADS, 1, 0, GatherParams, gather<bf16>)
KERNEL(copy_columns_16, THREADS, 1, 0, CopyParams, copy_columns<Bytes16>)
KERNEL(copy_columns_2, THREADS, 1, 0, CopyParams, copy_columns<bf16>)
