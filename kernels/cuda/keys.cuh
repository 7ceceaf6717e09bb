// Keys of tokens that order as their logits do.
#pragma once
#include "device.cuh"

// Orders as logits do, ties by lowest id first: no two keys of a row are equal. 0 is none.
typedef unsigned long long Key;

DEVICE float infinity() { return bits_to_float(0x7f800000u); }
DEVICE float minus_infinity() { return bits_to_float(0xff800000u); }

DEVICE Key key_of(float logit, unsigned id) {
    const unsigned bits = float_to_bits(logit + 0.0f);  // both zeros are one
    const unsigned ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (Key)ordered << 32 | ~id;
}

DEVICE float logit_of(Key key) {
    const unsigned ordered = (unsigned)(key >> 32);
    return bits_to_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

DEVICE unsigned id_of(Key key) { return ~(unsigned)key; }
