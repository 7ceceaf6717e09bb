// Moving the states of gated-delta-net layers past the kept rows: one read and one write of each.
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

// S = e^G S + sum_j e^(G - G_j) k_j u_j^T for KEYS key dimensions of a value head.
DEVICE void commit_state(const CommitLayer &p, const Tables &tables, int index, int head, int slice,
                         int key_heads, int value_heads) {
    CommitShared &shared = shared_as<CommitShared>();
    const Segment segment = tables.segments[index];
    const Kept kept_rows = kept_of(tables, index);
    const int kept = kept_rows.count;
    if (kept == 0) return;
    const int key_head = head / (value_heads / key_heads), first_key = slice * KEYS;
    const long long slot_head = (long long)segment.slot * value_heads + head;
    float *state = p.state + (slot_head * GDN_DIM + first_key) * GDN_DIM;

    // A thread owns four columns of every eighth key dimension.
    const int down = thread_index() / 32, across = thread_index() % 32;
    Float4 sum[KEYS / 8];
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) sum[i] = load<Float4>(state + (down + 8 * i) * GDN_DIM, across);

    if (thread_index() < kept) {
        const int row = segment.first + kept_rows.rows[thread_index()];
        shared.row[thread_index()] = row;
        shared.g[thread_index()] = p.g[(long long)row * value_heads + head];
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
        const long long at = ((long long)shared.row[j] * key_heads + key_head) * GDN_DIM;
        shared.keys[j][key] = shared.scale[j] * p.k[at + first_key + key];
    }
    for (int i = thread_index(); i < kept * (GDN_DIM / 4); i += THREADS) {
        const int j = i / (GDN_DIM / 4), unit = i % (GDN_DIM / 4);
        const long long at = ((long long)shared.row[j] * value_heads + head) * GDN_DIM;
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

// The last TAPS - 1 inputs along old state and kept rows become the new state, for eight channels.
DEVICE void commit_conv(const CommitLayer &p, const Tables &tables, int index, int unit, int channels,
                        int proj_stride) {
    const Segment segment = tables.segments[index];
    const int units = channels / 8;
    const Kept kept = kept_of(tables, index);
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

KERNEL(gdn_commit_states, THREADS, 2, sizeof(CommitShared), GdnParams, gdn_commit)
KERNEL(conv_commit_states, THREADS, 2, 0, ConvCommitParams, conv_commit)
KERNEL(commit_gdn_layers, THREADS, 2, sizeof(CommitShared), CommitLayersParams, commit_layers)
