// The front of a gated-delta-net layer: causal convolution over ancestors, SiLU, head norms, gates.
#include "device.cuh"
#include "params.h"

constexpr int PREPARE_WARPS = 4;
// Added to the sum of squares, inside the root.
constexpr float L2_EPS = 1e-6f;

DEVICE float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// Where the inputs of a row lie, newest first: its ancestors, then the rows of the state.
struct Inputs {
    const bf16 *row[TAPS];

    DEVICE Inputs(const GdnPrepareParams &p, int row_index, int channels, int stride) {
        const Segment segment = p.tables.segments[p.tables.row_segment[row_index]];
        const bf16 *proj = reinterpret_cast<const bf16 *>(p.proj);
        const bf16 *state = reinterpret_cast<const bf16 *>(p.conv_state) +
                            (long long)segment.slot * (TAPS - 1) * channels;
        int i = row_index - segment.first, taken = 0;
#pragma unroll
        for (int back = 0; back < TAPS; back++) {
            if (i >= 0) {
                row[back] = proj + (long long)(segment.first + i) * stride;
                i = p.tables.row_parent[segment.first + i];
                taken = back + 1;
            } else {
                row[back] = state + (long long)(TAPS - 2 - (back - taken)) * channels;
            }
        }
    }
};

DEVICE void prepare_gates(const GdnPrepareParams &p, int row, long long gates) {
    for (int head = thread_index() % 32; head < p.value_heads; head += 32) {
        const float b = to_float(load<bf16>(p.proj, gates + head));
        const float a = to_float(load<bf16>(p.proj, gates + p.value_heads + head));
        const long long at = (long long)row * p.value_heads + head;
        p.beta[at] = sigmoid(b);
        p.g[at] = -expf(p.a_log[head]) * softplus(a + p.dt_bias[head]);
    }
}

// Four channels of a row, from what the taps `w` of each see, oldest first.
DEVICE void prepare_channels(const GdnPrepareParams &p, int row, int group, const Float4 (&w)[4],
                             const Bytes8 *seen, int lane) {
    Float4 x[TAPS], y;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) x[tap] = widen(seen[tap]);
#pragma unroll
    for (int c = 0; c < 4; c++) {
        float sum = 0.0f;
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) sum += w[c].at[tap] * x[tap].at[c];
        y.at[c] = silu(sum);
    }
    const int key_units = p.key_heads * GDN_DIM / 4;
    if (group >= 2 * p.key_heads) {
        const int head = group - 2 * p.key_heads;
        store<Float4>(p.v, (long long)row * p.value_heads * GDN_DIM / 4 + head * 32 + lane, y);
        return;
    }
    const bool query = group < p.key_heads;
    float squares = 0.0f;
#pragma unroll
    for (int c = 0; c < 4; c++) squares += y.at[c] * y.at[c];
    float by = 1.0f / sqrtf(warp_sum(squares) + L2_EPS);
    if (query) by *= 0.08838834764831845f;  // GDN_DIM^-0.5
#pragma unroll
    for (int c = 0; c < 4; c++) y.at[c] *= by;
    const int head = query ? group : group - p.key_heads;
    store<Float4>(query ? p.q : p.k, (long long)row * key_units + head * 32 + lane, y);
}

DEVICE void prepare_row(const GdnPrepareParams &p, const Inputs &inputs, int row, int group,
                        const Float4 (&w)[4], int unit, bool aligned) {
    Bytes8 seen[TAPS];
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
        seen[tap] = load_row<Bytes8>(inputs.row[TAPS - 1 - tap], unit, aligned);
    prepare_channels(p, row, group, w, seen, thread_index() % 32);
}

// PREPARE_ROWS of a chain, each read once: what comes before the first, then all of them.
DEVICE void prepare_chain(const GdnPrepareParams &p, const Inputs &inputs, int first, int group,
                          const Float4 (&w)[4], int unit, int stride) {
    const bool aligned = stride % 8 == 0;
    Bytes8 seen[TAPS - 1 + PREPARE_ROWS];
    const bf16 *rows = inputs.row[0];
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++)
        seen[i] = load_row<Bytes8>(inputs.row[TAPS - 1 - i], unit, aligned);
#pragma unroll
    for (int i = 0; i < PREPARE_ROWS; i++)
        seen[TAPS - 1 + i] = load_row<Bytes8>(rows + (long long)i * stride, unit, aligned);
#pragma unroll
    for (int i = 0; i < PREPARE_ROWS; i++)
        prepare_channels(p, first + i, group, w, seen + i, thread_index() % 32);
}

// One warp per (some rows, group of 128 channels): a key head of q or k, a value head, or the gates. Several
// rows are for prompts: what a row needs in registers then is too much for few.
template <bool several>
DEVICE void gdn_prepare(const GdnPrepareParams &p) {
    constexpr int EACH = several ? PREPARE_ROWS : 1;
    const int lane = thread_index() % 32, first = block_y() * EACH;
    const int end = min_of(first + EACH, p.rows);
    const int group = block_x() * PREPARE_WARPS + thread_index() / 32;
    const int groups = 2 * p.key_heads + p.value_heads;
    const int channels = groups * GDN_DIM;
    const int stride = channels + p.value_heads * GDN_DIM + 2 * p.value_heads;
    // Tables are copied ahead of all kernels of a pass, and weights do not change.
    if (group >= groups) {
        wait_for_earlier();
        if (group > groups) return;
        for (int row = first; row < end; row++)
            prepare_gates(p, row, (long long)row * stride + stride - 2 * p.value_heads);
        return;
    }
    const Inputs inputs(p, first, channels, stride);
    const int unit = group * (GDN_DIM / 4) + lane;
    const bool aligned = stride % 8 == 0;
    Float4 w[4];
#pragma unroll
    for (int c = 0; c < 4; c++) w[c] = load<Float4>(p.conv_w, 4 * unit + c);
    if constexpr (several) {
        const int segment = p.tables.row_segment[first];
        const bool chain = end - first == PREPARE_ROWS && p.tables.row_segment[end - 1] == segment &&
                           !p.tables.segments[segment].tree;
        wait_for_earlier();
        if (chain) return prepare_chain(p, inputs, first, group, w, unit, stride);
        prepare_row(p, inputs, first, group, w, unit, aligned);
        for (int row = first + 1; row < end; row++)
            prepare_row(p, Inputs(p, row, channels, stride), row, group, w, unit, aligned);
    } else {
        wait_for_earlier();
        prepare_row(p, inputs, first, group, w, unit, aligned);
    }
}

KERNEL_AHEAD(gdn_prepare_rows, PREPARE_WARPS * 32, 1, 0, GdnPrepareParams, gdn_prepare<false>)
KERNEL_AHEAD(gdn_prepare_prompt, PREPARE_WARPS * 32, 1, 0, GdnPrepareParams, gdn_prepare<true>)
