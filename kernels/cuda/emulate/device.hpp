// The kernels' instructions in plain C++: each thread of a block is a fiber, so barriers, shuffles
// and matrix instructions behave as on a GPU, and asynchronous copies land when they are waited for,
// not before. Slow, and right: it is how the kernels are tested where there is no GPU.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#define DEVICE inline
#define __align__(n) alignas(n)

struct KernelInfo {
    unsigned threads;
    unsigned shared_bytes;
    unsigned overlaps;
};

// As on sm_90.
constexpr int MOST_SHARED = 227 * 1024;

namespace emulate {

struct Dim {
    unsigned x, y, z;
};

// What the running fiber is.
struct Place {
    unsigned thread;
    Dim block;
    Dim grid;
    unsigned char *shared;
};
extern thread_local Place place;

struct Kernel {
    const char *name;
    KernelInfo info;
    void (*run)(const void *params);
};
std::vector<Kernel> &kernels();

struct Register {
    Register(const char *name, KernelInfo info, void (*run)(const void *)) {
        kernels().push_back({name, info, run});
    }
};

void sync_block();
void sync_warp();
// Lets the other fibers and devices go on.
void relax();
long long nanoseconds();
// Hands `bytes` of each lane to all lanes; the answer holds 32 times as many.
const unsigned char *exchange(const void *mine, unsigned bytes);
void copy(void *to, const void *from, bool valid);
void commit();
void wait(unsigned pending);
void wait_for_earlier();

void sync_warpgroup();
// One arrival of `count`, of which so many are missing in this round.
void arrive(short count, short &missing, int &round);
// What this thread has begun to copy lands, and arrives, when somebody waits for it.
void copies_arrive(const void *barrier);
void land_copies(const void *barrier, const std::function<void()> &arrived);
// Products, done in order when they are waited for.
void begin_product(std::function<void()> product);
void commit_products();
void wait_for_products(unsigned pending);

[[noreturn]] void fail(const char *what);

}  // namespace emulate

#define KERNEL_AHEAD(name, threads, blocks_per_sm, shared_bytes, Params, ...)                            \
    static_assert((shared_bytes) <= MOST_SHARED, #name " needs too much shared memory");            \
    static void name##_run(const void *params) {                                                   \
        __VA_ARGS__(*reinterpret_cast<const Params *>(params));                                    \
    }                                                                                              \
    static emulate::Register name##_registered(                                                    \
        #name, KernelInfo{threads, (unsigned)(shared_bytes), 1}, name##_run);

inline void wait_for_earlier() { emulate::wait_for_earlier(); }

template <class Params, void (*body)(const Params &)>
void in_turn(const Params &params) {
    wait_for_earlier();
    body(params);
}

#define KERNEL(name, threads, blocks_per_sm, shared_bytes, Params, ...)                            \
    KERNEL_AHEAD(name, threads, blocks_per_sm, shared_bytes, Params, in_turn<Params, __VA_ARGS__>)


template <class T>
T &shared_as() {
    return *reinterpret_cast<T *>(emulate::place.shared);
}

inline int thread_index() { return (int)emulate::place.thread; }
inline int block_x() { return (int)emulate::place.block.x; }
inline int block_y() { return (int)emulate::place.block.y; }
inline int block_z() { return (int)emulate::place.block.z; }
inline int grid_x() { return (int)emulate::place.grid.x; }
inline int grid_y() { return (int)emulate::place.grid.y; }
inline int grid_z() { return (int)emulate::place.grid.z; }

inline void sync_block() { emulate::sync_block(); }
inline void sync_warp() { emulate::sync_warp(); }

template <class T>
T shuffle(T x, int lane) {
    const unsigned char *all = emulate::exchange(&x, sizeof x);
    T y;
    memcpy(&y, all + sizeof x * lane, sizeof x);
    return y;
}
template <class T>
T shuffle_xor(T x, int lanes) {
    return shuffle(x, (thread_index() % 32) ^ lanes);
}

inline void fence() {}
// Blocks run one after another: what is waited for must have come.
inline void wait_for_count(const int *counter, int count) {
    if (*counter < count) emulate::fail("waits for a later block");
}
inline int count_up(int *counter) { return (*counter)++; }
template <class T>
void add_to(T *sum, T x) {
    *sum += x;
}
template <class T>
T load_fresh(const T *from) {
    return *from;
}
inline bool claim(long long *at, long long seen, long long next) {
    if (*at != seen) return false;
    *at = next;
    return true;
}

inline unsigned load_system(const unsigned *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
inline void store_system(unsigned *to, unsigned word) {
    __atomic_store_n(to, word, __ATOMIC_RELAXED);
}
inline void load_system(const void *from, unsigned (&word)[4]) {
    for (int i = 0; i < 4; i++) word[i] = load_system(static_cast<const unsigned *>(from) + i);
}
inline void store_system(void *to, const unsigned (&word)[4]) {
    for (int i = 0; i < 4; i++) store_system(static_cast<unsigned *>(to) + i, word[i]);
}
inline long long nanoseconds() { return emulate::nanoseconds(); }
inline void relax() { emulate::relax(); }
constexpr int LOOKS_PER_CLOCK = 16;

inline float rounded_product(float a, float b) { return a * b; }

inline float bits_to_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

inline unsigned float_to_bits(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}

inline unsigned long long double_to_bits(double x) {
    unsigned long long bits;
    memcpy(&bits, &x, 8);
    return bits;
}

inline unsigned round_half(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;  // NaN
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

inline unsigned round_pair(float lo, float hi) { return round_half(lo) | round_half(hi) << 16; }

inline int opaque(int x) { return x; }
inline void fetch_ahead(const void *) {}
inline float fast_exp2(float x) { return exp2f(x); }
inline float fast_reciprocal(float x) { return 1.0f / x; }

inline void fast_sincos(float angle, float &sine, float &cosine) {
    sine = sinf(angle);
    cosine = cosf(angle);
}

inline void copy_async(void *shared, const void *global, bool valid) {
    emulate::copy(shared, global, valid);
}
inline void copy_async_stream(void *shared, const void *global, bool valid) {
    emulate::copy(shared, global, valid);
}
inline void commit_copies() { emulate::commit(); }
template <int pending>
inline void wait_copies() {
    emulate::wait(pending);
}

inline unsigned short half_at(const unsigned char *row, int index) {
    unsigned short half;
    memcpy(&half, row + 2 * index, 2);
    return half;
}

inline void load_matrices(unsigned (&to)[4], const void *shared) {
    const void *const *rows =
        reinterpret_cast<const void *const *>(emulate::exchange(&shared, sizeof shared));
    const int lane = thread_index() % 32;
    for (int m = 0; m < 4; m++) {
        const unsigned char *row = (const unsigned char *)rows[8 * m + lane / 4];
        to[m] = half_at(row, 2 * (lane % 4)) | (unsigned)half_at(row, 2 * (lane % 4) + 1) << 16;
    }
    emulate::sync_warp();  // the rows may be overwritten from here on
}

inline void load_matrices_transposed(unsigned (&to)[4], const void *shared) {
    const void *const *rows =
        reinterpret_cast<const void *const *>(emulate::exchange(&shared, sizeof shared));
    const int lane = thread_index() % 32;
    for (int m = 0; m < 4; m++) {
        const unsigned char *first = (const unsigned char *)rows[8 * m + 2 * (lane % 4)];
        const unsigned char *second = (const unsigned char *)rows[8 * m + 2 * (lane % 4) + 1];
        to[m] = half_at(first, lane / 4) | (unsigned)half_at(second, lane / 4) << 16;
    }
    emulate::sync_warp();
}

inline void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const unsigned *all = reinterpret_cast<const unsigned *>(emulate::exchange(mine, sizeof mine));
    const int lane = thread_index() % 32;
    const auto value = [](unsigned word, int k) {
        return bits_to_float(k % 2 ? word & 0xffff0000u : word << 16);
    };
    for (int c = 0; c < 4; c++) {
        const int row = lane / 4 + 8 * (c / 2), column = 2 * (lane % 4) + c % 2;
        for (int k = 0; k < 16; k++) {
            // Lane and register that hold a[row][k] and b[k][column].
            const unsigned *left = all + 6 * (row % 8 * 4 + k % 8 / 2);
            const unsigned *right = all + 6 * (column * 4 + k % 8 / 2);
            sum[c] += value(left[row / 8 + 2 * (k / 8)], k) * value(right[4 + k / 8], k);
        }
    }
}
