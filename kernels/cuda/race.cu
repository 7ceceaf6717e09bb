// A token from each open row: the first to arrive of those that the filters leave. Arrivals are compared
// in f32, and those near the first one again in f64.
#include "device.cuh"
#include "keys.cuh"
#include "noise.cuh"
#include "params.h"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int BLOCKS_OF_NOISE = DRAW_SLICE / NOISE_TOKENS / THREADS;  // for each thread
// Later than any arrival.
constexpr float NEVER = 3.0e38f;
// What f32 may be wrong by, with room: of an arrival, and of a weight.
constexpr float NEAR = 1e-4f;
// A token with less than exp(this) times the largest weight cannot win: the likeliest arrives before
// -ln(2^-53) = 36.8, this one after 2^-53 / exp(this).
constexpr float HOPELESS = -45.0f;

constexpr First NOBODY = {~0ull, ~0ull};

struct Shared {
    First first[THREADS];
    float soonest[WARPS];
    int arrived;
};

// For the uniform u of these words 1 - u, which is less than -ln(u), the time that is waited.
DEVICE float wait_at_least(unsigned low, unsigned high) {
    return (float)~high * 0x1p-32f + ((float)(~low >> 12) + 0.5f) * 0x1p-52f;
}

DEVICE float wait_of(unsigned low, unsigned high) {
    if (high >> 31) return -log1pf(-wait_at_least(low, high));
    return -logf((float)high * 0x1p-32f + ((float)(low >> 12) + 0.5f) * 0x1p-52f);
}

DEVICE double weight_of(float logit, float largest, const DrawRow &draw) {
    return exp(((double)logit - largest) / draw.temperature);
}

// Calls `visit(id, logit, weight, low, high)` for this thread's tokens that may win.
template <class Visit>
DEVICE void each_kept(const DrawParams &p, const OpenRow &row, const DrawRow &draw, Visit visit) {
    const float *logits = p.logits + (long long)block_y() * p.width;
    const float power = 1.0f / draw.temperature;
#pragma unroll 1
    for (int i = 0; i < BLOCKS_OF_NOISE; i++) {
        const int block = (block_x() * BLOCKS_OF_NOISE + i) * THREADS + thread_index();
        float logit[NOISE_TOKENS], weight[NOISE_TOKENS];
        bool any = false;
#pragma unroll
        for (int j = 0; j < NOISE_TOKENS; j++) {
            const int column = block * NOISE_TOKENS + j;
            logit[j] = column < p.columns ? logits[column] : minus_infinity();
            const float below = (logit[j] - row.largest) * power;
            weight[j] = 0.0f;
            if (!(below > HOPELESS) || key_of(logit[j], (unsigned)column) < row.least) continue;
            const float w = expf(below);
            const bool kept = fabsf(w - draw.min_p) > NEAR * draw.min_p
                                  ? w >= draw.min_p
                                  : (float)weight_of(logit[j], row.largest, draw) >= draw.min_p;
            if (kept) weight[j] = w;
            any |= kept;
        }
        if (!any) continue;
        const NoiseBlock noise = noise_block(draw.seed, draw.position, (unsigned)block);
#pragma unroll
        for (int j = 0; j < NOISE_TOKENS; j++) {
            if (weight[j] == 0.0f) continue;
            const unsigned id = (unsigned)(block * NOISE_TOKENS + j);
            visit(id, logit[j], weight[j], noise.word[2 * j], noise.word[2 * j + 1]);
        }
    }
}

DEVICE float block_min(Shared &shared, float x) {
    x = -warp_max(-x);
    if (thread_index() % 32 == 0) shared.soonest[thread_index() / 32] = x;
    sync_block();
    for (int i = 0; i < WARPS; i++) x = fminf(x, shared.soonest[i]);
    return x;
}

// Ties go to the lowest id.
DEVICE bool before(const First &a, const First &b) {
    return a.arrival < b.arrival || (a.arrival == b.arrival && a.token < b.token);
}

// Positive numbers order as their bits do.
DEVICE First arrival_of(double arrival, unsigned id, float logit) {
    return {double_to_bits(arrival), (Key)id << 32 | float_to_bits(logit)};
}

DEVICE First block_first(Shared &shared, const First &mine) {
    const int thread = thread_index();
    shared.first[thread] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        sync_block();
        if (thread < half && before(shared.first[thread + half], shared.first[thread]))
            shared.first[thread] = shared.first[thread + half];
    }
    sync_block();
    return shared.first[0];
}

// One block per slice and row; the last of a row to come knows the winner.
DEVICE void race_slice(const DrawParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index();
    OpenRow &row = p.open[block_y()];
    if (!row.open) return;
    const DrawRow draw = p.draws[block_y()];
    float soonest = NEVER;
    each_kept(p, row, draw, [&](unsigned, float, float weight, unsigned low, unsigned high) {
        if (wait_at_least(low, high) < soonest * weight)
            soonest = fminf(soonest, wait_of(low, high) / weight);
    });
    const float near = block_min(shared, soonest) * (1.0f + NEAR);
    First first = NOBODY;
    if (soonest < NEVER && soonest <= near) {
        each_kept(p, row, draw, [&](unsigned id, float logit, float weight, unsigned low,
                                    unsigned high) {
            if (wait_at_least(low, high) > near * weight || wait_of(low, high) > near * weight) return;
            const double wait = -log(uniform_of(low, high));
            const double arrival = wait / weight_of(logit, row.largest, draw);
            const First other = arrival_of(arrival, id, logit);
            if (before(other, first)) first = other;
        });
    }
    first = block_first(shared, first);
    First *firsts = p.firsts + (long long)block_y() * grid_x();
    if (thread == 0) {
        firsts[block_x()] = first;
        fence();
        shared.arrived = count_up(&row.arrived);
    }
    sync_block();
    if (shared.arrived + 1 < grid_x()) return;
    fence();
    first = NOBODY;
    for (int i = thread; i < grid_x(); i += THREADS) {
        const First other{load_fresh(&firsts[i].arrival), load_fresh(&firsts[i].token)};
        if (before(other, first)) first = other;
    }
    first = block_first(shared, first);
    if (thread > 0 || first.arrival == NOBODY.arrival) return;
    p.out[2 * block_y()] = (float)(unsigned)(first.token >> 32);
    p.out[2 * block_y() + 1] = bits_to_float((unsigned)first.token);
}

KERNEL(race_rows, THREADS, 3, sizeof(Shared), DrawParams, race_slice)
