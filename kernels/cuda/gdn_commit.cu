// Moving the states of gated-delta-net layers past the kept rows: one read and one write of each.
#include "kept.cuh"

constexpr int WARPS = 4, THREADS = 32 * WARPS;
// Key dimensions of a block, and of a warp.
constexpr int KEYS = 32, MINE = KEYS / WARPS;

struct CommitShared {
    float keys[TREE_ROWS][KEYS];
    float u[TREE_ROWS][GDN_DIM];
    float g[TREE_ROWS];
    float scale[TREE_ROWS];  // e^(G - G_j)
    float from_state;        // e^G
};

// S = e^G S + sum_j e^(G - G_j) k_j u_j^T for KEYS key dimensions of a value head: a warp has MINE of them,
// a lane four columns.
DEVICE void commit_state(const CommitLayer &p, const Tables &tables, int index, int head, int slice,
                         int key_heads, int value_heads) {
    CommitShared &shared = shared_as<CommitShared>();
    const int thread = thread_index(), warp = thread / 32, lane = thread % 32;
    // Tables are copied ahead of all kernels of a pass.
    const Segment segment = tables.segments[index];
    const Kept kept = kept_of(tables, index, segment.first);
    const int first_key = slice * KEYS, key_head = head / (value_heads / key_heads);
    const long long slot_head = (long long)segment.slot * value_heads + head;
    float *state = p.state + (slot_head * GDN_DIM + first_key + warp * MINE) * GDN_DIM;
    if (kept.count > 0) fetch_ahead(state + lane * 32);
    wait_for_earlier();
    if (kept.count == 0) return;
    Float4 sum[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++) sum[i] = load<Float4>(state + i * GDN_DIM, lane);
    if (thread < kept.count) {
        const long long row = segment.first + kept.rows[thread];
        shared.g[thread] = p.g[row * value_heads + head];
    }
#pragma unroll 4
    for (int j = warp; j < kept.count; j += WARPS) {
        const long long row = segment.first + kept.rows[j];
        const float *from = p.u + (row * value_heads + head) * GDN_DIM;
        copy_async(&shared.u[j][4 * lane], from + 4 * lane, true);
    }
    constexpr int UNITS = KEYS / 4;
    for (int j = thread / UNITS; j < kept.count; j += THREADS / UNITS) {
        const long long row = segment.first + kept.rows[j];
        const int key = 4 * (thread % UNITS);
        const float *from = p.k + (row * key_heads + key_head) * GDN_DIM + first_key;
        copy_async(&shared.keys[j][key], from + key, true);
    }
    commit_copies();
    sync_block();
    if (thread < kept.count) {
        float decay = 0.0f;
#pragma unroll 4
        for (int j = kept.count - 1; j > thread; j--) decay += shared.g[j];
        shared.scale[thread] = expf(decay);
        if (thread == 0) shared.from_state = expf(decay + shared.g[0]);
    }
    wait_copies<0>();
    sync_block();
    const float from_state = shared.from_state;
#pragma unroll
    for (int i = 0; i < MINE; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) sum[i].at[c] *= from_state;
#pragma unroll 2
    for (int j = 0; j < kept.count; j++) {
        Float4 u = load<Float4>(shared.u[j], lane);
        const float scale = shared.scale[j];
#pragma unroll
        for (int c = 0; c < 4; c++) u.at[c] *= scale;
#pragma unroll
        for (int four = 0; four < MINE / 4; four++) {
            const Float4 keys = load<Float4>(shared.keys[j] + warp * MINE, four);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < 4; c++) sum[4 * four + i].at[c] += keys.at[i] * u.at[c];
        }
    }
#pragma unroll
    for (int i = 0; i < MINE; i++) store<Float4>(state + i * GDN_DIM, lane, sum[i]);
}

// The last TAPS - 1 inputs along old state and kept rows become the new state, for eight channels.
DEVICE void commit_conv(const CommitLayer &p, const Tables &tables, int index, int unit, int channels,
                        int proj_stride) {
    wait_for_earlier();
    const Segment segment = tables.segments[index];
    const int units = channels / 8;
    const Kept kept = kept_of(tables, index, segment.first);
    if (unit >= units || kept.count == 0) return;
    const int shift = min_of(kept.count, TAPS - 1);
    const long long state = (long long)segment.slot * (TAPS - 1) * units + unit;
    Bytes16 values[TAPS - 1];
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) {
        // Input `i` of the new state: `i + shift` of the old one, then the newest kept rows.
        const int fresh = i + shift - (TAPS - 1);
        if (fresh < 0) {
            values[i] = load<Bytes16>(p.conv_state, state + (long long)(i + shift) * units);
        } else {
            const int newest = kept.rows[kept.count - shift + fresh];
            const long long row = (long long)(segment.first + newest) * proj_stride;
            const bf16 *proj = reinterpret_cast<const bf16 *>(p.proj) + row;
            values[i] = load_row<Bytes16>(proj, unit, proj_stride % 8 == 0);
        }
    }
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++)
        store<Bytes16>(p.conv_state, state + (long long)i * units, values[i]);
}

// Grid: (slices, value heads, segments).
DEVICE void gdn_commit(const GdnParams &p) {
    const CommitLayer layer = {p.k, p.g, p.u, p.state, nullptr, nullptr};
    commit_state(layer, p.tables, block_z(), block_y(), block_x(), p.key_heads, p.value_heads);
}

// Grid: (channels, segments).
DEVICE void conv_commit(const ConvCommitParams &p) {
    const CommitLayer layer = {nullptr, nullptr, nullptr, nullptr, p.proj, p.conv_state};
    const int unit = block_x() * THREADS + thread_index();
    commit_conv(layer, p.tables, block_y(), unit, p.channels, p.proj_stride);
}

// Both, of several layers. Grid: (slices, value heads, then channels, layers * segments).
DEVICE void commit_layers(const CommitLayersParams &p) {
    const CommitLayer &layer = p.layers[block_z() / p.segments];
    const int index = block_z() % p.segments, groups = 2 * p.key_heads + p.value_heads;
    const int channels = groups * GDN_DIM;
    const int stride = channels + p.value_heads * (GDN_DIM + 2);
    if (block_y() < p.value_heads) {
        commit_state(layer, p.tables, index, block_y(), block_x(), p.key_heads, p.value_heads);
        return;
    }
    const int block = (block_y() - p.value_heads) * grid_x() + block_x();
    commit_conv(layer, p.tables, index, block * THREADS + thread_index(), channels, stride);
}

KERNEL_AHEAD(gdn_commit_states, THREADS, 4, sizeof(CommitShared), GdnParams, gdn_commit)
KERNEL_AHEAD(conv_commit_states, THREADS, 4, 0, ConvCommitParams, conv_commit)
KERNEL_AHEAD(commit_gdn_layers, THREADS, 4, sizeof(CommitShared), CommitLayersParams, commit_layers)
