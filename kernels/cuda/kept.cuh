// The kept rows of a segment.
#pragma once
#include "device.cuh"
#include "params.h"

struct Kept {
    const int *rows;  // within the segment, in path order
    int count;
};

DEVICE Kept kept_of(const Tables &tables, int segment) {
    const int first = segment == 0 ? 0 : tables.kept_ends[segment - 1];
    return Kept{tables.kept + first, tables.kept_ends[segment] - first};
}
