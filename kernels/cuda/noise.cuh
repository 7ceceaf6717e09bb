// The noise that tokens are drawn with: ChaCha with eight rounds. The seed is the key, the position the
// nonce, the token (eight to a block) the counter.
#pragma once
#include "device.cuh"

// Tokens of one block of noise.
constexpr int NOISE_TOKENS = 8;

// Two words for each token.
struct NoiseBlock {
    unsigned word[2 * NOISE_TOKENS];
};

DEVICE unsigned rotate(unsigned x, int bits) { return x << bits | x >> (32 - bits); }

DEVICE void quarter(unsigned &a, unsigned &b, unsigned &c, unsigned &d) {
    d = rotate(d ^ (a += b), 16);
    b = rotate(b ^ (c += d), 12);
    d = rotate(d ^ (a += b), 8);
    b = rotate(b ^ (c += d), 7);
}

DEVICE NoiseBlock noise_block(unsigned long long seed, unsigned long long position,
                              unsigned counter) {
    const NoiseBlock start{{0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, (unsigned)seed,
                            (unsigned)(seed >> 32), 0, 0, 0, 0, 0, 0, counter, 0,
                            (unsigned)position, (unsigned)(position >> 32)}};
    NoiseBlock x = start;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            quarter(x.word[j], x.word[4 + j], x.word[8 + j], x.word[12 + j]);
#pragma unroll
        for (int j = 0; j < 4; j++)
            quarter(x.word[j], x.word[4 + (j + 1) % 4], x.word[8 + (j + 2) % 4],
                    x.word[12 + (j + 3) % 4]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) x.word[i] += start.word[i];
    return x;
}

// In (0, 1), from the two words of a token.
DEVICE double uniform_of(unsigned low, unsigned high) {
    const unsigned long long bits = (unsigned long long)high << 32 | low;
    return ((double)(bits >> 12) + 0.5) / (double)(1ull << 52);
}

DEVICE double uniform(unsigned long long seed, unsigned long long position, unsigned token) {
    const NoiseBlock block = noise_block(seed, position, token / NOISE_TOKENS);
    unsigned low = 0, high = 0;
#pragma unroll
    for (unsigned i = 0; i < NOISE_TOKENS; i++) {
        if (token % NOISE_TOKENS == i) {
            low = block.word[2 * i];
            high = block.word[2 * i + 1];
        }
    }
    return uniform_of(low, high);
}
