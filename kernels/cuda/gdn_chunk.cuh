// What gdn_chunk.cu works out of a chunk of a prompt, and gdn_prefill.cu goes on from.
#pragma once
#include "params.h"
#include "split.cuh"

constexpr int CHUNK_ROWS = 64;
constexpr int CHUNK_BLOCKS = CHUNK_ROWS / 16;
constexpr int KEY_STEPS = GDN_DIM / 16;

// Of a value head, with G_i the sum of g from the first row on, and T the inverse of the unit lower
// triangular matrix of beta_i e^(G_i - G_j) (k_j . k_i).
struct HeadChunk {
    StoredLeft w[CHUNK_BLOCKS][KEY_STEPS];       // T (beta_i e^G_i k_i)
    StoredLeft near[CHUNK_BLOCKS][CHUNK_BLOCKS]; // e^(G_i - G_j) k_j . q_i, for j up to i
    Float4 u[CHUNK_BLOCKS][GDN_DIM / 8][32];     // T (beta_i v_i), tiles
    float from_start[CHUNK_ROWS];                // e^G_i
    float to_end[CHUNK_ROWS];                    // e^(G - G_i)
};
static_assert(sizeof(HeadChunk) == PREFILL_HEAD_BYTES, "mirrored in params.rs");

// Of a key head.
struct KeyChunk {
    StoredLeft q[CHUNK_BLOCKS][KEY_STEPS];
    StoredLeft k[KEY_STEPS][CHUNK_BLOCKS];  // transposed
};
static_assert(sizeof(KeyChunk) == PREFILL_KEY_BYTES, "mirrored in params.rs");

// Where both lie: `chunk` counts those of the launch within a segment.
DEVICE HeadChunk &head_chunk(const GdnPrefillParams &p, int segment, int chunk, int head) {
    const long long at = (long long)segment * p.chunks + chunk;
    return ((HeadChunk *)p.head_chunks)[at * p.rows.value_heads + head];
}

DEVICE KeyChunk &key_chunk(const GdnPrefillParams &p, int segment, int chunk, int head) {
    const long long at = (long long)segment * p.chunks + chunk;
    return ((KeyChunk *)p.key_chunks)[at * p.rows.key_heads + head];
}
