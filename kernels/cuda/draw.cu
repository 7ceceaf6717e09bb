// A token from each row of candidates: the likeliest, or Gumbel-max among those that the filters leave.
#include "device.cuh"
#include "keys.cuh"
#include "params.h"

constexpr int THREADS = 128;
constexpr int TOP_WIDTH = 2 * CANDIDATES + 1;

struct Shared {
    Key given[MOST_RANKS * CANDIDATES];
    Key ranked[CANDIDATES];
    double weight[CANDIDATES];   // of the candidates at the temperature, the likeliest's is 1
    double plain[CANDIDATES];    // the same at temperature 1
    double arrival[CANDIDATES];  // in the race
    double total;                // weight of those that are kept
    int kept;
};

DEVICE unsigned rotate(unsigned x, int bits) { return x << bits | x >> (32 - bits); }

DEVICE void quarter(unsigned &a, unsigned &b, unsigned &c, unsigned &d) {
    d = rotate(d ^ (a += b), 16);
    b = rotate(b ^ (c += d), 12);
    d = rotate(d ^ (a += b), 8);
    b = rotate(b ^ (c += d), 7);
}

// In (0, 1): two words of ChaCha with eight rounds. The seed is the key, the position the nonce, the
// token (eight to a block) the counter.
DEVICE double uniform(unsigned long long seed, unsigned long long position, unsigned token) {
    const unsigned s0 = 0x61707865u, s1 = 0x3320646eu, s2 = 0x79622d32u, s3 = 0x6b206574u;
    const unsigned key0 = (unsigned)seed, key1 = (unsigned)(seed >> 32), counter = token / 8;
    const unsigned nonce0 = (unsigned)position, nonce1 = (unsigned)(position >> 32);
    unsigned x0 = s0, x1 = s1, x2 = s2, x3 = s3;
    unsigned x4 = key0, x5 = key1, x6 = 0, x7 = 0, x8 = 0, x9 = 0, x10 = 0, x11 = 0;
    unsigned x12 = counter, x13 = 0, x14 = nonce0, x15 = nonce1;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        quarter(x0, x4, x8, x12);
        quarter(x1, x5, x9, x13);
        quarter(x2, x6, x10, x14);
        quarter(x3, x7, x11, x15);
        quarter(x0, x5, x10, x15);
        quarter(x1, x6, x11, x12);
        quarter(x2, x7, x8, x13);
        quarter(x3, x4, x9, x14);
    }
    unsigned low, high;
    switch (token % 8) {
        case 0: low = x0 + s0, high = x1 + s1; break;
        case 1: low = x2 + s2, high = x3 + s3; break;
        case 2: low = x4 + key0, high = x5 + key1; break;
        case 3: low = x6, high = x7; break;
        case 4: low = x8, high = x9; break;
        case 5: low = x10, high = x11; break;
        case 6: low = x12 + counter, high = x13; break;
        default: low = x14 + nonce0, high = x15 + nonce1; break;
    }
    const unsigned long long bits = (unsigned long long)high << 32 | low;
    return ((double)(bits >> 12) + 0.5) / (double)(1ull << 52);
}

// Ranks the candidates of all ranks: how many there are, at most CANDIDATES.
DEVICE int order(Shared &shared, const float *tops, int ranks) {
    const int given = ranks * CANDIDATES;
    for (int i = thread_index(); i < given; i += THREADS) {
        const float *top = tops + i / CANDIDATES * TOP_WIDTH;
        const float logit = top[i % CANDIDATES];
        const unsigned id = (unsigned)top[CANDIDATES + i % CANDIDATES];
        shared.given[i] = logit > minus_infinity() ? key_of(logit, id) : 0;
    }
    if (thread_index() < CANDIDATES) shared.ranked[thread_index()] = 0;
    sync_block();
    for (int i = thread_index(); i < given; i += THREADS) {
        const Key key = shared.given[i];
        int rank = 0;
        for (int j = 0; j < given; j++) rank += shared.given[j] > key;
        if (key != 0 && rank < CANDIDATES) shared.ranked[rank] = key;
    }
    sync_block();
    int found = 0;
    while (found < CANDIDATES && shared.ranked[found] != 0) found++;
    return found;
}

// How many of the likeliest the filters leave, and their weight.
DEVICE void filter(Shared &shared, const DrawRow &draw, const float *tops, int ranks, int found) {
    int kept = found;
    double rest = 0.0;
    if (draw.top_k > 0 && draw.top_k <= (unsigned)found) {
        kept = (int)draw.top_k;
    } else if (found == CANDIDATES) {
        // Of the others only the sum at temperature 1 is known; below it, at most this is left.
        const double largest = logit_of(shared.ranked[0]);
        for (int i = 0; i < ranks; i++)
            rest += exp(tops[i * TOP_WIDTH] + (double)tops[i * TOP_WIDTH + 2 * CANDIDATES] - largest);
        for (int i = 0; i < found; i++) rest -= shared.plain[i];
        const double floor = logit_of(shared.ranked[found - 1]) - largest;
        const double power = 1.0 / draw.temperature - 1.0;
        rest = rest > 0.0 ? rest * exp(floor * (power > 0.0 ? power : 0.0)) : 0.0;
    }
    double total = rest, before = 0.0;
    for (int i = 0; i < kept; i++) total += shared.weight[i];
    for (int i = 0; i < kept; i++) {
        const bool ends = i > 0 && draw.top_p < 1.0f && (float)(before / total) >= draw.top_p;
        if (ends || (i > 0 && (float)shared.weight[i] < draw.min_p)) {
            kept = i;
            break;
        }
        before += shared.weight[i];
    }
    shared.kept = kept;
    shared.total = before;
}

// One block per row.
DEVICE void draw_token(const DrawParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index();
    const float *tops = p.tops + (long long)block_x() * p.ranks * TOP_WIDTH;
    const DrawRow draw = p.draws[block_x()];
    const int found = order(shared, tops, p.ranks);
    if (found == 0 || draw.temperature == 0.0f) {
        if (thread == 0) p.out[block_x()] = found == 0 ? 0.0f : (float)id_of(shared.ranked[0]);
        return;
    }
    if (thread < found) {
        const double below = (double)logit_of(shared.ranked[thread]) - logit_of(shared.ranked[0]);
        shared.weight[thread] = exp(below / draw.temperature);
        shared.plain[thread] = exp(below);
    }
    sync_block();
    if (thread == 0) filter(shared, draw, tops, p.ranks, found);
    sync_block();
    if (thread < shared.kept) {
        const double share = (float)(shared.weight[thread] / shared.total);
        const unsigned id = id_of(shared.ranked[thread]);
        shared.arrival[thread] = -log(uniform(draw.seed, draw.position, id)) / share;
    }
    sync_block();
    if (thread == 0) {
        int first = 0;
        for (int i = 1; i < shared.kept; i++)
            if (shared.arrival[i] < shared.arrival[first]) first = i;
        p.out[block_x()] = (float)id_of(shared.ranked[first]);
    }
}

KERNEL(draw_tokens, THREADS, 2, sizeof(Shared), DrawParams, draw_token)
