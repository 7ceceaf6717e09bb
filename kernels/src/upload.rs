//! Small tables on their way to the device.

use volley_ops::Result;

use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::kernel::{WRITE_LARGE, WRITE_SMALL};
use crate::params::{LARGE_WRITE, LargeWriteParams, SMALL_WRITE, SmallWriteParams};

/// Threads of a block of the writing kernels.
const THREADS: usize = 256;

/// Copies to the device in stream order; `data` is free at once. What is small travels in the
/// parameters of a kernel: a copy in between makes the kernels around it wait for each other longer.
pub fn upload(driver: &dyn Driver, op: &'static str, to: Address, data: &[u8]) -> Result<()> {
    let words = data.len() / 4;
    let grid = [words.div_ceil(THREADS), 1, 1];
    let whole = data.len().is_multiple_of(4);
    // SAFETY: callers stay inside an allocation.
    let uploaded = unsafe {
        if whole && words <= SMALL_WRITE {
            let params = SmallWriteParams {
                to,
                words: words as i32,
                padding: 0,
                data: padded(data),
            };
            WRITE_SMALL.launch(driver, grid, &params)
        } else if whole && words <= LARGE_WRITE {
            let params = LargeWriteParams {
                to,
                words: words as i32,
                padding: 0,
                data: padded(data),
            };
            WRITE_LARGE.launch(driver, grid, &params)
        } else {
            driver.stage(to, data)
        }
    };
    uploaded.map_err(in_op(op))
}

/// The words of some bytes, and zeros.
fn padded<const N: usize>(data: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    bytemuck::cast_slice_mut(&mut words)[..data.len()].copy_from_slice(data);
    words
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use bytemuck::cast_slice;

    use super::*;
    use crate::Emulated;
    use crate::kernel::LAND;
    use crate::params::{LAND_PARTS, LandParams};

    /// Of every size class, and one byte more.
    #[test]
    fn what_is_uploaded_arrives() {
        let driver = Emulated::new(1);
        let most = 4 * LARGE_WRITE;
        let to = driver.alloc("test", most + 8).expect("host memory");
        for len in [
            0,
            3,
            4,
            4 * SMALL_WRITE,
            4 * SMALL_WRITE + 4,
            most,
            most + 4,
        ] {
            driver.zero(to, most + 8).expect("host memory");
            let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
            upload(&driver, "test", to, &data).expect("a copy");
            let mut found = vec![0; most + 8];
            driver.read(to, &mut found).expect("host memory");
            assert_eq!(found[..len], data);
            assert!(found[len..].iter().all(|byte| *byte == 0), "{len} bytes");
        }
        driver.free(to);
    }

    /// What a read lets land: parts one behind the other, also empty ones, and nothing behind them.
    #[test]
    fn parts_land_one_behind_the_other() {
        let driver = Emulated::new(1);
        let words: Vec<u32> = (1..=1000).collect();
        let from = driver.alloc("test", 4000).expect("host memory");
        driver.write(from, cast_slice(&words)).expect("host memory");
        for counts in [[300, 0, 5, 257], [0, 0, 0, 1], [256, 256, 0, 0]] {
            let to = driver.alloc("test", 4000).expect("host memory");
            driver.zero(to, 4000).expect("host memory");
            let mut params = LandParams {
                from: [0; LAND_PARTS],
                to,
                ends: [0; LAND_PARTS],
            };
            let (mut expected, mut end) = (Vec::new(), 0);
            for (part, count) in counts.into_iter().enumerate() {
                params.from[part] = from + 40 * part as u64;
                expected.extend_from_slice(&words[10 * part..][..count]);
                end += count;
                params.ends[part] = end as i32;
            }
            // SAFETY: all words are inside the allocations.
            unsafe { LAND.launch(&driver, [end.div_ceil(THREADS), 1, 1], &params) }
                .expect("a known kernel");
            let mut found = vec![0u8; 4000];
            driver.read(to, &mut found).expect("host memory");
            expected.resize(1000, 0);
            assert_eq!(cast_slice::<u8, u32>(&found), expected);
            driver.free(to);
        }
        driver.free(from);
    }
}
