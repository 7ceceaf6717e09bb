// Hopper's instructions (sm_90a) under the names that the kernels use; what they need is told apart by
// WARPGROUPS, so that a kernel is left out for other targets.
#pragma once

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS 1
#else
#define WARPGROUPS 0
#endif

// A barrier in shared memory: a round ends when so many have arrived; rounds count from 0.
struct Arrivals {
    unsigned long long word;
};

// By one thread, before any other looks at it (a barrier of the block between).
DEVICE void expect_arrivals(Arrivals &arrivals, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&arrivals)), "r"(count)
                 : "memory");
}

DEVICE void arrive(Arrivals &arrivals) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&arrivals)) : "memory");
}

// Arrives once the copies that this thread has begun are done.
DEVICE void arrive_after_copies(Arrivals &arrivals) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&arrivals))
                 : "memory");
}

// Waits until a round has ended, this one or the one behind it; before the first, round -1 has.
DEVICE void wait_for_round(Arrivals &arrivals, int round) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra ended;\n"
        "bra again;\n"
        "ended:\n"
        "}" ::"r"(shared_address(&arrivals)),
        "r"(round & 1)
        : "memory");
}

// What was written to shared memory and is known to this thread can be read by products from here on.
DEVICE void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Barrier of the threads of a warpgroup.
DEVICE void sync_warpgroup() {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + thread_index() / 128) : "memory");
}

// Registers per thread from here on, of all threads of the warpgroup.
template <int COUNT>
DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Whether any lane of the warp says so.
DEVICE bool any_lane(bool yes) { return __any_sync(0xffffffffu, yes); }

// An operand in panels, `panel_bytes` apart. Strides between groups of eight rows are 1,024 bytes.
DEVICE unsigned long long operand(const void *shared, int panel_bytes) {
    const unsigned long long swizzled = 1ull << 62;
    return swizzled | 64ull << 32 | (unsigned long long)(panel_bytes >> 4) << 16 |
           (shared_address(shared) & 0x3ffff) >> 4;
}
DEVICE unsigned long long operand_at(unsigned long long operand, int bytes) {
    return operand + (bytes >> 4);
}

// Ahead of the first product after its registers were written.
DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `pending` of the groups committed last are under way; registers of the others are
// to be settled before they are used.
template <int pending>
DEVICE void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Says that products were waited for that read or wrote these registers.
template <int COUNT>
DEVICE void settle(float (&x)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(x[i][0]), "+f"(x[i][1]), "+f"(x[i][2]), "+f"(x[i][3])::"memory");
}
DEVICE void settle(unsigned (&x)[4]) {
    asm volatile("" : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])::"memory");
}
template <int COUNT>
DEVICE void settle(unsigned (&x)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) settle(x[i]);
}

#define SUMS(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
#define SUMS_8(i) \
    SUMS(i), SUMS(i + 1), SUMS(i + 2), SUMS(i + 3), SUMS(i + 4), SUMS(i + 5), SUMS(i + 6), SUMS(i + 7)

// sum (+)= a b^T for 64 rows of a, four warps of 16 each, and the rows of b, both in panels, over 16
// columns. A warp's part is as that of `multiply_add`.
DEVICE void multiply_rows(float (&sum)[10][4], unsigned long long a, unsigned long long b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %42, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39}, "
        "%40, %41, add, 1, 1, 0, 0;\n}"
        : SUMS_8(0), SUMS(8), SUMS(9)
        : "l"(a), "l"(b), "r"((int)add)
        : "memory");
}

// sum += a b for 64 rows of a, of which each warp holds 16 as `multiply_add` has them, and 16 rows of b in
// panels.
DEVICE void multiply_panels(float (&sum)[8][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
        "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, add, 1, 1, 1;\n}"
        : SUMS_8(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}
DEVICE void multiply_panels(float (&sum)[32][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "
        "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
        "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "
        "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
        "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "
        "%124, %125, %126, %127}, "
        "{%128, %129, %130, %131}, %132, add, 1, 1, 1;\n}"
        : SUMS_8(0), SUMS_8(8), SUMS_8(16), SUMS_8(24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}
#undef SUMS
#undef SUMS_8
