// What the chunks of a prompt, 64 rows each, are worth whatever the state before them is: the rule of
// gdn_verify.cu for a chain, solved for any state. All chunks at the same time.
// Grid: (chunks, value heads, segments); 8 warps.
#include "gdn_chunk.cuh"
#include "triangle.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int ROWS = CHUNK_ROWS, BLOCKS = CHUNK_BLOCKS;
static_assert(WARPS == 2 * BLOCKS, "a warp per block of keys and of queries");
static_assert(WARPS == KEY_STEPS, "a warp solves 16 columns");

struct ChunkShared {
    union {
        struct {
            Halves<ROWS, GDN_DIM> k, q;
        };
        struct {
            Halves<ROWS, ROWS> system;  // -beta_i e^(G_i - G_j) k_j . k_i; inverses on the diagonal
            Halves<ROWS, GDN_DIM> x;    // the solution so far
        };
    };
    Diagonal<ROWS> diagonal;
    float beta[ROWS];
    float decay[2][ROWS];  // G_i: high and low part
};

// A chunk as one value head sees it.
struct Chunk {
    const GdnParams &p;
    int first;
    int rows;
    int head, key_head;
    int lane;

    DEVICE long long key(int row) const {
        return ((long long)(first + row) * p.key_heads + key_head) * GDN_DIM;
    }
    DEVICE long long gate(int row) const {
        return (long long)(first + row) * p.value_heads + head;
    }
    DEVICE long long value(int row) const { return gate(row) * GDN_DIM; }
};

// Keys and queries: a warp takes every eighth row, a lane four of its columns; rows beyond the chunk
// become zeros.
DEVICE void load_rows(ChunkShared &shared, const Chunk &chunk) {
    const int warp = thread_index() / 32, column = 4 * chunk.lane;
    Float4 x[2][ROWS / WARPS];
#pragma unroll
    for (int i = 0; i < ROWS / WARPS; i++) {
        const int row = warp + WARPS * i;
        x[0][i] = x[1][i] = Float4{};
        if (row >= chunk.rows) continue;
        x[0][i] = load<Float4>(chunk.p.k + chunk.key(row) + column, 0);
        x[1][i] = load<Float4>(chunk.p.q + chunk.key(row) + column, 0);
    }
#pragma unroll
    for (int i = 0; i < ROWS / WARPS; i++) {
        const int row = warp + WARPS * i;
#pragma unroll
        for (int c = 0; c < 4; c += 2) {
            store_pair(shared.k, row, column + c, x[0][i].at[c], x[0][i].at[c + 1]);
            store_pair(shared.q, row, column + c, x[1][i].at[c], x[1][i].at[c + 1]);
        }
    }
}

// Gates of the chunk and sums of log decays, by one warp, two rows to a lane. The sums are kept in
// two parts, so that differences of large sums are exact enough.
DEVICE void load_gates(ChunkShared &shared, const Chunk &chunk) {
    const int lane = chunk.lane;
    double g[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = 2 * lane + i;
        const bool valid = row < chunk.rows;
        g[i] = valid ? chunk.p.g[chunk.gate(row)] : 0.0f;
        shared.beta[row] = valid ? chunk.p.beta[chunk.gate(row)] : 0.0f;
    }
    double before = 0.0, total = g[0] + g[1];
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const float high = (float)total, low = (float)(total - high);
        const double other = (double)shuffle_xor(high, lanes) + (double)shuffle_xor(low, lanes);
        if (lane & lanes) before += other;
        total += other;
    }
    const double sums[2] = {before + g[0], before + g[0] + g[1]};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float high = (float)sums[i];
        shared.decay[0][2 * lane + i] = high;
        shared.decay[1][2 * lane + i] = (float)(sums[i] - high);
    }
}

// e^(G_i - G_j), and e^G_i.
DEVICE float decay_between(const ChunkShared &shared, int i, int j) {
    return expf((shared.decay[0][i] - shared.decay[0][j]) +
                (shared.decay[1][i] - shared.decay[1][j]));
}
DEVICE float decay_from_start(const ChunkShared &shared, int i) {
    return expf(shared.decay[0][i] + shared.decay[1][i]);
}

// Products of a warp's 16 rows, keys or queries, with the keys up to them. Queries and transposed keys
// are kept, once for all value heads of a key head.
DEVICE void multiply_rows(Tile (&gram)[ROWS / 8], ChunkShared &shared, KeyChunk *kept, bool keys,
                          int block, int lane) {
#pragma unroll 1
    for (int step = 0; step < KEY_STEPS; step++) {
        const Left a = keys ? left_of(shared.k, 16 * block, step, lane)
                            : left_of(shared.q, 16 * block, step, lane);
        if (kept && !keys) store_left(kept->q[block][step], a, lane);
        Right b[ROWS / 8];
        const int seen = 2 * (block + 1);
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
            if (n < seen) b[n] = right_of_transposed(shared.k, step, n, lane);
        accumulate(gram, a, b, seen);
    }
    if (!kept) return;
    const int warp = thread_index() / 32;
#pragma unroll
    for (int step = 0; step < BLOCKS; step++)
        store_left(kept->k[warp][step], left_of_transposed(shared.k, 16 * warp, step, lane), lane);
}

// Decays and masks. Key rows leave the system in shared memory, query rows are kept.
DEVICE void place(Tile (&gram)[ROWS / 8], ChunkShared &shared, HeadChunk &kept, bool keys, int block,
                  int lane) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = 16 * block + lane / 4 + 8 * half;
        const float by = keys ? -shared.beta[i] : 1.0f;
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++) {
            if (n / 2 > block) continue;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &value = gram[n].at[2 * half + c];
                value *= by * decay_between(shared, i, 8 * n + 2 * (lane % 4) + c);
            }
        }
    }
    // On the diagonal rows see only what comes before them, queries their own row too.
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        if (n / 2 != block) continue;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int i = lane / 4 + 8 * (c / 2), j = 8 * (n % 2) + 2 * (lane % 4) + c % 2;
            float &value = gram[n].at[c];
            if (j > i || (keys && j == i)) value = 0.0f;
            if (keys) shared.diagonal[block][j][i] = value;
        }
    }
#pragma unroll
    for (int step = 0; step < BLOCKS; step++) {
        if (step > block) continue;
        const Tile &x = gram[2 * step], &next = gram[2 * step + 1];
        if (keys) {
            store_tile(shared.system, 16 * block, 2 * step, x, lane);
            store_tile(shared.system, 16 * block, 2 * step + 1, next, lane);
        } else {
            store_left(kept.near[block][step], left_of(x, next), lane);
        }
    }
}

// A warp's 16 columns of something.
typedef Columns<BLOCKS, 2> Sixteen;

// Right sides: rows of keys, times beta e^G, or of values, times beta.
DEVICE Sixteen right_sides(const ChunkShared &shared, const Chunk &chunk, bool keys) {
    Sixteen right;
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; i++) {
        const int row = 8 * i + chunk.lane / 4;
        const float *from = keys ? chunk.p.k + chunk.key(row) : chunk.p.v + chunk.value(row);
        const float by =
            keys ? shared.beta[row] * decay_from_start(shared, row) : shared.beta[row];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            Float2 x = {};
            const int column = 16 * (thread_index() / 32) + 8 * n + 2 * (chunk.lane % 4);
            if (row < chunk.rows) x = load<Float2>(from + column, 0);
            float *to = right.at[i / 2][n].at + 2 * (i % 2);
            to[0] = by * x.at[0];
            to[1] = by * x.at[1];
        }
    }
    return right;
}

DEVICE void gdn_chunk(const GdnPrefillParams &p) {
    ChunkShared &shared = shared_as<ChunkShared>();
    const Segment segment = p.rows.tables.segments[p.first_segment + block_z()];
    const int done = (p.first_chunk + block_x()) * ROWS, head = block_y();
    if (done >= segment.rows) return;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const int group = p.rows.value_heads / p.rows.key_heads, key_head = head / group;
    const Chunk chunk = {p.rows, segment.first + done, min_of(ROWS, segment.rows - done),
                         head,   key_head,             lane};
    HeadChunk &kept = head_chunk(p, block_z(), block_x(), head);
    KeyChunk *kept_keys = &key_chunk(p, block_z(), block_x(), key_head);
    if (head != key_head * group) kept_keys = nullptr;

    load_rows(shared, chunk);
    if (warp == 0) load_gates(shared, chunk);
    sync_block();
    if (thread_index() < ROWS) {
        kept.from_start[thread_index()] = decay_from_start(shared, thread_index());
        kept.to_end[thread_index()] = decay_between(shared, ROWS - 1, thread_index());
    }
    const bool keys = warp < BLOCKS;
    const int block = warp % BLOCKS;
    Tile gram[ROWS / 8] = {};
    multiply_rows(gram, shared, kept_keys, keys, block, lane);
    sync_block();  // keys and queries make room
    place(gram, shared, kept, keys, block, lane);
    sync_block();
    static_assert(THREADS == 4 * ROWS, "four for each column");
    invert_diagonal(shared.system, shared.diagonal);
    sync_block();
    Sixteen x = right_sides(shared, chunk, true);
    solve(x, shared.system, shared.x, 2 * warp, lane);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
        store_left(kept.w[b][warp], left_of(x.at[b][0], x.at[b][1]), lane);
    x = right_sides(shared, chunk, false);
    solve(x, shared.system, shared.x, 2 * warp, lane);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float *u = x.at[b][n].at;
            kept.u[b][2 * warp + n][lane] = {{u[0], u[1], u[2], u[3]}};
        }
}

KERNEL(gdn_chunks, THREADS, 1, sizeof(ChunkShared), GdnPrefillParams, gdn_chunk)
