// Folds the kept rows of each segment into its state: one read and one write of the state.
// S = e^G S + sum_j e^(G - G_j) k_j u_j^T. Grid: (slices of KEYS key dimensions, value heads,
// segments).
#include "kept.cuh"

constexpr int THREADS = 256;
constexpr int KEYS = 32;

struct CommitShared {
    float keys[TREE_ROWS][KEYS];  // e^(G - G_j) k_j
    float u[TREE_ROWS][GDN_DIM];
    int row[TREE_ROWS];
    float g[TREE_ROWS];
    float scale[TREE_ROWS];
    float from_state;
};

DEVICE void gdn_commit(const GdnParams &p) {
    CommitShared &shared = shared_as<CommitShared>();
    const Segment segment = p.tables.segments[block_z()];
    const Kept kept_rows = kept_of(p.tables, block_z());
    const int head = block_y(), kept = kept_rows.count;
    if (kept == 0) return;
    const int key_head = head / (p.value_heads / p.key_heads), first_key = block_x() * KEYS;
    const long long slot_head = (long long)segment.slot * p.value_heads + head;
    float *state = p.state + (slot_head * GDN_DIM + first_key) * GDN_DIM;

    // A thread owns four columns of every eighth key dimension.
    const int down = thread_index() / 32, across = thread_index() % 32;
    Float4 sum[KEYS / 8];
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) sum[i] = load<Float4>(state + (down + 8 * i) * GDN_DIM, across);

    if (thread_index() < kept) {
        const int row = segment.first + kept_rows.rows[thread_index()];
        shared.row[thread_index()] = row;
        shared.g[thread_index()] = p.g[(long long)row * p.value_heads + head];
    }
    sync_block();
    if (thread_index() == 0) {
        float decay = 0.0f;
        for (int j = kept - 1; j >= 0; j--) {
            shared.scale[j] = expf(decay);
            decay += shared.g[j];
        }
        shared.from_state = expf(decay);
    }
    sync_block();
    for (int i = thread_index(); i < kept * KEYS; i += THREADS) {
        const int j = i / KEYS, key = i % KEYS;
        const long long at = ((long long)shared.row[j] * p.key_heads + key_head) * GDN_DIM;
        shared.keys[j][key] = shared.scale[j] * p.k[at + first_key + key];
    }
    for (int i = thread_index(); i < kept * (GDN_DIM / 4); i += THREADS) {
        const int j = i / (GDN_DIM / 4), unit = i % (GDN_DIM / 4);
        const long long at = ((long long)shared.row[j] * p.value_heads + head) * GDN_DIM;
        store<Float4>(shared.u[j], unit, load<Float4>(p.u + at, unit));
    }
    sync_block();
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) sum[i].at[c] *= shared.from_state;
#pragma unroll 4
    for (int j = 0; j < kept; j++) {
        const Float4 u = load<Float4>(shared.u[j], across);
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++) {
            const float key = shared.keys[j][down + 8 * i];
#pragma unroll
            for (int c = 0; c < 4; c++) sum[i].at[c] += key * u.at[c];
        }
    }
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) store<Float4>(state + (down + 8 * i) * GDN_DIM, across, sum[i]);
}

KERNEL(gdn_commit_states, THREADS, 2, sizeof(CommitShared), GdnParams, gdn_commit)
