//! Loops compiled for the widest vectors of the machine, chosen at run time.

/// How a product is added: fused where the machine does it in one instruction.
pub trait MulAdd: Copy + Send + Sync {
    /// `a * b + c`.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// One rounding, one instruction.
#[derive(Clone, Copy)]
pub struct Fused;

/// Two roundings, for machines without the instruction.
#[derive(Clone, Copy)]
pub struct Separate;

impl MulAdd for Fused {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl MulAdd for Separate {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// A loop worth compiling more than once. `run` must be `#[inline(always)]`, with all it calls.
pub trait Kernel {
    /// Compiled inside a function that enables the vectors.
    fn run<M: MulAdd>(self);
}

/// Runs the kernel in the best form this machine supports. Which form is a property of the machine,
/// so equal inputs give equal bits throughout a process.
pub fn dispatch<K: Kernel>(kernel: K) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn avx2<K: Kernel>(kernel: K) {
            kernel.run::<Fused>();
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: both features were detected.
            return unsafe { avx2(kernel) };
        }
        kernel.run::<Separate>();
    }
    #[cfg(target_arch = "aarch64")]
    kernel.run::<Fused>();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    kernel.run::<Separate>();
}

const LANES: usize = 32;

/// Dot product of equally long slices, in an order that depends on their length only.
#[inline(always)]
pub fn dot<M: MulAdd>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail = a.remainder().iter().zip(b.remainder());
    let tail = tail.fold(0.0, |sum, (&a, &b)| M::mul_add(a, b, sum));
    for (a, b) in a.zip(b) {
        for i in 0..LANES {
            lanes[i] = M::mul_add(a[i], b[i], lanes[i]);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0] + tail
}

/// `y += a x`.
#[inline(always)]
pub fn add_scaled<M: MulAdd>(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = M::mul_add(a, x, *y);
    }
}
