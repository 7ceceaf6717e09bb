// What Hopper has beyond Ampere: products of a warpgroup (four warps) with operands in shared memory,
// barriers that count arrivals, and registers that move between warpgroups.
#pragma once
#include "device.cuh"

#ifdef VOLLEY_EMULATE
#include "emulate/warpgroup.hpp"
#else
#include "native_warpgroup.cuh"
#endif

constexpr int WARPGROUP = 128;
// A matrix that is an operand lies in panels of 64 columns, each of whose rows fills 128 bytes, units of
// 16 bytes swizzled by the row as `unit_at` does it; a panel starts at a multiple of 1,024 bytes.
constexpr int PANEL = 64;
constexpr int PANEL_STEP = 16 * 2;         // bytes: 16 columns on within a panel
constexpr int PANEL_ROWS_STEP = 16 * 128;  // bytes: 16 rows on
