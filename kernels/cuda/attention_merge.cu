// The parts of attention's outputs, each with the greatest score and the sum of weights of its keys, become
// out = their weighted sum, times the gate. A thread has four columns of a row; of many parts it adds up every
// so many, for threads of other lines to add theirs. Grid: (units of a row's columns, rows).
#include "sight.cuh"

struct MergeShared {
    float weight[MERGE_THREADS / 32][MOST_SPLITS];  // of each part, over the sum of all; a copy per warp
    Float4 sums[MERGE_THREADS];
};

template <int HEAD>
DEVICE void merge(const AttentionParams &p) {
    MergeShared &shared = shared_as<MergeShared>();
    constexpr int MINE = MOST_SPLITS / 32, TOGETHER = 4;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const int lines = p.splits > MERGE_FEW ? MERGE_LINES : 1, length = MERGE_THREADS / lines;
    const int line = thread_index() / length;
    const int column = 4 * (block_x() * length + thread_index() % length), head = column / HEAD;
    const bool valid = head < p.heads;
    const long long at = (long long)block_y() * p.heads + (valid ? head : 0);
    const long long stride = (long long)p.rows * p.heads;
    const float *parts = p.partial + at * HEAD + column % HEAD;
    Float2 part[MINE];  // greatest, sum
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        const int split = lane + 32 * i;
        part[i] = {{-INFINITY, 0.0f}};
        if (split < p.splits) part[i] = load<Float2>(p.partial_max, split * stride + at);
    }
    Float4 x[TOGETHER], sum = {};
#pragma unroll
    for (int i = 0; i < TOGETHER; i++)
        if (line + i * lines < p.splits) x[i] = load<Float4>(parts + (line + i * lines) * stride * HEAD, 0);
    Float4 gate = {{1.0f, 1.0f, 1.0f, 1.0f}};
    if (p.gate && valid && line == 0) {
        const long long from = block_y() * (long long)p.gate_stride + head * 2 * HEAD + column % HEAD;
        const Float4 g = widen(load_row<Bytes8>((const bf16 *)p.gate + from, 0, false));
#pragma unroll
        for (int c = 0; c < 4; c++) gate.at[c] = sigmoid(g.at[c]);
    }
    float greatest = part[0].at[0], total = 0.0f;
#pragma unroll
    for (int i = 1; i < MINE; i++) greatest = fmaxf(greatest, part[i].at[0]);
    greatest = warp_max(greatest);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        part[i].at[0] = fast_exp2(part[i].at[0] - greatest);
        total += part[i].at[0] * part[i].at[1];
    }
    const float by = 1.0f / warp_sum(total);
#pragma unroll
    for (int i = 0; i < MINE; i++) shared.weight[warp][lane + 32 * i] = part[i].at[0] * by;
    sync_warp();
#pragma unroll 1
    for (int split = line; split < p.splits; split += TOGETHER * lines) {
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            if (split + i * lines >= p.splits) continue;
            const float weight = shared.weight[warp][split + i * lines];
            if (weight == 0.0f) continue;  // there may be nothing
#pragma unroll
            for (int c = 0; c < 4; c++) sum.at[c] += weight * x[i].at[c];
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int next = split + (TOGETHER + i) * lines;
            if (next < p.splits) x[i] = load<Float4>(parts + next * stride * HEAD, 0);
        }
    }
    if (lines > 1) {
        shared.sums[thread_index()] = sum;
        sync_block();
        if (line > 0) return;
        for (int i = 1; i < lines; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) sum.at[c] += shared.sums[thread_index() + i * length].at[c];
    }
    if (!valid) return;
#pragma unroll
    for (int c = 0; c < 4; c++) sum.at[c] *= gate.at[c];
    store<Bytes8>(p.out, (at * HEAD + column % HEAD) / 4, narrow(sum));
}

KERNEL(attention_merge_128, MERGE_THREADS, 4, sizeof(MergeShared), AttentionParams, merge<128>)
KERNEL(attention_merge_256, MERGE_THREADS, 4, sizeof(MergeShared), AttentionParams, merge<256>)
