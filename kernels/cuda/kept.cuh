// The kept rows of a segment.
#pragma once
#include "device.cuh"
#include "params.h"

struct Kept {
    const int *rows;  // within the segment, in path order
    int count;
};

// Of a segment, whose first row is `first`.
DEVICE Kept kept_of(const Tables &tables, int segment, int first) {
    return Kept{tables.kept + first, tables.kept_counts[segment]};
}
