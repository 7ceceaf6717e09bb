// What attention's packed (row, query head) pairs see, and where keys and gates lie.
#pragma once
#include "device.cuh"
#include "params.h"

// What a packed row sees: tokens `first..end` of a chain; of a tree those from `first` up to the
// committed length, then the rows whose bit is set.
struct Sight {
    int first;
    int end;
    unsigned long long word;
};

DEVICE Sight sight_of(const AttentionParams &p, const Segment &segment, int row) {
    const int position = p.tables.row_position[segment.first + row];
    Sight sight = {0, segment.past + (p.causal ? row + 1 : segment.rows), 0};
    if (p.window) sight.first = max_of(0, position + 1 - p.window);
    if (segment.tree) {
        const unsigned long long all = ~0ull >> (TREE_ROWS - segment.rows);
        sight.word = p.causal ? p.tables.row_ancestors[segment.first + row] : all;
#pragma unroll 1
        for (int j = 0; p.window && j < segment.rows; j++) {
            const bool near = p.tables.row_position[segment.first + j] >= sight.first;
            if (!near) sight.word &= ~(1ull << j);
        }
        sight.end = segment.past + segment.rows;
    }
    return sight;
}

DEVICE bool sees(const Sight &sight, int token, int past, bool tree) {
    if (tree && token >= past)
        return token < sight.end && ((sight.word >> (token - past)) & 1);
    return token >= sight.first && token < sight.end;
}

// Place of a token's keys, and values, in the cache.
DEVICE long long place_of(const AttentionParams &p, const Segment &segment, int kv_head, int token) {
    const unsigned block = p.tables.blocks[segment.blocks + token / BLOCK_TOKENS];
    return ((long long)block * BLOCK_TOKENS + token % BLOCK_TOKENS) * p.kv_heads + kv_head;
}

// Where a value of the output's gate lies: query and gate of a head stand side by side.
template <int HEAD>
DEVICE float gate_at(const AttentionParams &p, long long row, int head, int column) {
    if (!p.gate) return 1.0f;
    const long long at = row * p.gate_stride + (long long)head * 2 * HEAD + column;
    return sigmoid(to_float(load<bf16>(p.gate, at)));
}

// The part of a block without keys, for one query head.
DEVICE void give_nothing(const AttentionParams &p, int head) {
    if (head < 0) return;
    const long long part = (long long)block_x() * p.rows * p.heads + head;
    store<Float2>(p.partial_max, part, {{-INFINITY, 0.0f}});
}

// What the packed rows see together: tokens from `first`, all of them from `all_from`, up to `end`.
struct Reach {
    int first, all_from, end;
};

template <int ROWS>
DEVICE Reach reach_of(const Sight (&sights)[ROWS]) {
    Reach reach = {0x7fffffff, 0, 0};
#pragma unroll 1
    for (int i = thread_index() % 32; i < ROWS; i += 32) {
        const Sight &sight = sights[i];
        reach.first = min_of(reach.first, sight.first);
        reach.all_from = max_of(reach.all_from, sight.first);
        reach.end = max_of(reach.end, sight.end);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        reach.first = min_of(reach.first, shuffle_xor(reach.first, lanes));
        reach.all_from = max_of(reach.all_from, shuffle_xor(reach.all_from, lanes));
        reach.end = max_of(reach.end, shuffle_xor(reach.end, lanes));
    }
    return reach;
}
