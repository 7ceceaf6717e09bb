// Moving rows: embedding, gather, copies into columns.
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 256;

// out[i] = from[index[i] - first], zeros outside. One block per row.
template <class Unit>
DEVICE void gather(const GatherParams &p) {
    const unsigned row = p.index[block_x()] - p.first;
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

KERNEL(gather_16, THREADS, 1, 0, GatherParams, gather<Bytes16>)
KERNEL(gather_2, THREADS, 1, 0, GatherParams, gather<bf16>)
KERNEL(copy_columns_16, THREADS, 1, 0, CopyParams, copy_columns<Bytes16>)
KERNEL(copy_columns_2, THREADS, 1, 0, CopyParams, copy_columns<bf16>)
