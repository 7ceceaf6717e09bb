// CUDA's instructions under the names that the kernels use. Everything here exists on sm_80.
#pragma once

#define DEVICE __device__ __forceinline__

// Threads per block, bytes of shared memory, and whether the kernel may start before the one ahead of
// it in the stream has ended: the kernel `name_info` tells the host.
struct KernelInfo {
    unsigned threads;
    unsigned shared_bytes;
    unsigned overlaps;
};

// Bytes of shared memory that a block may have: on sm_90, and on sm_86.
#if __CUDA_ARCH__ >= 900
#define OVERLAPS 1
constexpr int MOST_SHARED = 227 * 1024;
#else
#define OVERLAPS 0
constexpr int MOST_SHARED = 99 * 1024;
#endif

// Waits until all kernels ahead have ended and what they wrote can be read. Every thread of every
// kernel calls this before it touches anything that a kernel writes, so that ends are in order.
DEVICE void wait_for_earlier() {
#if OVERLAPS
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start as soon as there is room, up to its `wait_for_earlier`.
DEVICE void let_next_start() {
#if OVERLAPS
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A kernel `name` that runs `body(params)`; `...` is the body, a function or template instance, which
// waits for the kernels ahead itself.
#define KERNEL_AHEAD(name, threads, blocks_per_sm, shared_bytes, Params, ...)                            \
    static_assert((shared_bytes) <= MOST_SHARED, #name " needs too much shared memory");           \
    extern "C" {                                                                                   \
    __global__ void name##_info(KernelInfo *info) {                                                \
        *info = KernelInfo{threads, (unsigned)(shared_bytes), OVERLAPS};                                     \
    }                                                                                              \
    __global__ void __launch_bounds__(threads, blocks_per_sm)                                      \
        name(const __grid_constant__ Params params) {                                              \
        let_next_start();                                                                          \
        __VA_ARGS__(params);                                                                       \
    }                                                                                              \
    }

// Waits for the kernels ahead, then runs `body`.
template <class Params, void (*body)(const Params &)>
DEVICE void in_turn(const Params &params) {
    wait_for_earlier();
    body(params);
}

// As KERNEL_AHEAD, for a body that starts when the kernels ahead have ended.
#define KERNEL(name, threads, blocks_per_sm, shared_bytes, Params, ...)                            \
    KERNEL_AHEAD(name, threads, blocks_per_sm, shared_bytes, Params, in_turn<Params, __VA_ARGS__>)

// A kernel that this target has no instructions for: it says that it is not there.
#define KERNEL_ABSENT(name, Params)                                                                \
    extern "C" {                                                                                   \
    __global__ void name##_info(KernelInfo *info) { *info = KernelInfo{}; }                        \
    __global__ void name(const __grid_constant__ Params params) {}                                 \
    }

template <class T>
DEVICE T &shared_as() {
    extern __shared__ __align__(1024) unsigned char dynamic_shared[];
    return *reinterpret_cast<T *>(dynamic_shared);
}

DEVICE int thread_index() { return (int)threadIdx.x; }
DEVICE int block_x() { return (int)blockIdx.x; }
DEVICE int block_y() { return (int)blockIdx.y; }
DEVICE int block_z() { return (int)blockIdx.z; }
DEVICE int grid_x() { return (int)gridDim.x; }
DEVICE int grid_y() { return (int)gridDim.y; }
DEVICE int grid_z() { return (int)gridDim.z; }

DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
// What another lane has.
DEVICE int shuffle(int x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEVICE float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEVICE double shuffle(double x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
DEVICE int shuffle_xor(int x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
DEVICE unsigned long long shuffle_xor(unsigned long long x, int lanes) {
    return __shfl_xor_sync(0xffffffffu, x, lanes);
}

// Orders this thread's memory accesses for the other blocks.
DEVICE void fence() { __threadfence(); }
// Adds one and answers what was there before.
DEVICE int count_up(int *counter) { return atomicAdd(counter, 1); }
DEVICE void add_to(unsigned *sum, unsigned x) { atomicAdd(sum, x); }
DEVICE void add_to(unsigned long long *sum, unsigned long long x) { atomicAdd(sum, x); }
// Waits until `counter` is at least `count`, and for what was written before it was counted up.
DEVICE void wait_for_count(const int *counter, int count) {
    int seen;
    do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (seen < count);
}
// What another block of this launch has written.
DEVICE float load_fresh(const float *from) { return __ldcg(from); }
DEVICE long long load_fresh(const long long *from) { return __ldcg(from); }
DEVICE unsigned load_fresh(const unsigned *from) { return __ldcg(from); }
DEVICE unsigned long long load_fresh(const unsigned long long *from) { return __ldcg(from); }
// Puts `next` in the place of `seen`, if that is still there: of many that try, one is told so.
DEVICE bool claim(long long *at, long long seen, long long next) {
    unsigned long long *word = reinterpret_cast<unsigned long long *>(at);
    return atomicCAS(word, (unsigned long long)seen, (unsigned long long)next) ==
           (unsigned long long)seen;
}

// Memory that other devices or the host write at the same time; a word arrives whole.
DEVICE unsigned load_system(const unsigned *from) {
    unsigned word;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return word;
}

DEVICE void store_system(unsigned *to, unsigned word) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

DEVICE void load_system(const void *from, unsigned (&word)[4]) {
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "l"(from)
                 : "memory");
}

DEVICE void store_system(void *to, const unsigned (&word)[4]) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word[0]),
                 "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}

DEVICE long long nanoseconds() {
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// A moment for the others, in a loop that waits for them.
DEVICE void relax() {}
// Times that such a loop looks for them before it looks at the clock, which takes longer.
constexpr int LOOKS_PER_CLOCK = 1024;

// A product that does not become part of a sum.
DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }

DEVICE float bits_to_float(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned float_to_bits(float x) { return __float_as_uint(x); }
DEVICE unsigned long long double_to_bits(double x) {
    return (unsigned long long)__double_as_longlong(x);
}

DEVICE unsigned round_pair(float lo, float hi) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

// `x`, which the compiler then knows nothing about.
DEVICE int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

// 2^x, two units in the last place.
DEVICE float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x, one unit in the last place.
DEVICE float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Angles in -pi..pi only.
DEVICE void fast_sincos(float angle, float &sine, float &cosine) {
    sine = __sinf(angle);
    cosine = __cosf(angle);
}

DEVICE unsigned shared_address(const void *pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// 16 bytes from global to shared memory behind the thread's back; zeros when not `valid`.
DEVICE void copy_async(void *shared, const void *global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

// As `copy_async`, for what is read once and in order: fetches 256 bytes into the L2 cache.
DEVICE void copy_async_stream(void *shared, const void *global, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

// Brings the 128 bytes around an address into the L2 cache. What a kernel ahead may still write there is
// not read early: the cache is where writes go.
DEVICE void fetch_ahead(const void *global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of the groups committed last are under way.
template <int pending>
DEVICE void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Four 8x8 matrices of bf16; lane `l` gives the address of row `l % 8` of matrix `l / 8`.
DEVICE void load_matrices(unsigned (&to)[4], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(shared))
                 : "memory");
}

DEVICE void load_matrices_transposed(unsigned (&to)[4], const void *shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(shared))
                 : "memory");
}

// sum += a b for a 16x16 and b 16x8 of bf16, in f32.
DEVICE void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
