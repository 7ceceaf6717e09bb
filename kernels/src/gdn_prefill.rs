//! The gated delta rule over prompts: what chunks of rows are worth by themselves, all of them at the
//! same time, and then the state through them, one after the other.

use volley_ops::{GdnDims, GdnRows, Result};

use crate::buf::Buf;
use crate::dims::{check, check_index};
use crate::driver::Driver;
use crate::error::in_op;
use crate::gdn::{check_slots, params};
use crate::kernel::{GDN_CHUNKS, GDN_PREFILL_32, GDN_PREFILL_64};
use crate::params::{
    GDN_DIM, GdnPrefillParams, PREFILL_HEAD_BYTES, PREFILL_KEY_BYTES, PREFILL_ROWS,
};
use crate::scratch::Scratch;
use crate::tables::Pass;

pub fn prefill(
    driver: &dyn Driver,
    scratch: &Scratch,
    dims: GdnDims,
    rows: &GdnRows<Buf>,
    pass: &Pass,
    state: &Buf,
    out: &Buf,
) -> Result<()> {
    let op = "gdn_prefill";
    check(op, "number of trees", pass.facts.trees, 0)?;
    check_slots(op, pass, state, true)?;
    let rows = params(op, dims, rows, pass, state, Some(out))?;
    let (heads, segments) = (dims.value_heads, pass.facts.segments);
    let chunk_bytes = heads * PREFILL_HEAD_BYTES + dims.key_heads * PREFILL_KEY_BYTES;
    check_index(op, "bytes of a chunk", chunk_bytes, scratch.bytes + 1)?;
    let room = scratch.bytes / chunk_bytes;
    let (segment_parts, _) = parts(segments, room);
    let chunks = pass.facts.longest.div_ceil(PREFILL_ROWS);
    // Narrow slices where wide ones would leave half of the machine idle.
    let wide = 64;
    let blocks = GDN_DIM / wide * heads * segments;
    let (kernel, columns) = match 2 * blocks <= driver.multiprocessors() {
        true => (GDN_PREFILL_32, wide / 2),
        false => (GDN_PREFILL_64, wide),
    };
    for some in segment_parts {
        let (chunk_parts, most) = parts(chunks, room / some.len());
        let head_chunks = scratch.memory.address();
        let head_bytes = some.len() * most * heads * PREFILL_HEAD_BYTES;
        for part in chunk_parts {
            let params = GdnPrefillParams {
                rows,
                head_chunks,
                key_chunks: head_chunks + head_bytes as u64,
                first_segment: some.start as i32,
                first_chunk: part.start as i32,
                chunks: part.len() as i32,
                padding: 0,
            };
            // SAFETY: all buffers and slots were checked; the chunks fit the scratch memory.
            let launched = unsafe {
                GDN_CHUNKS
                    .launch(driver, [part.len(), heads, some.len()], &params)
                    .and_then(|()| {
                        let grid = [GDN_DIM / columns, heads, some.len()];
                        kernel.launch(driver, grid, &params)
                    })
            };
            launched.map_err(in_op(op))?;
        }
    }
    Ok(())
}

/// `0..count` in as few parts of at most `room` as will do, of about the same length, and the longest
/// length.
fn parts(count: usize, room: usize) -> (impl Iterator<Item = std::ops::Range<usize>>, usize) {
    let most = count.div_ceil(count.div_ceil(room).max(1)).max(1);
    let part = move |first: usize| first..(first + most).min(count);
    ((0..count).step_by(most).map(part), most)
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_cover_all_and_fit() {
        for count in 0..40 {
            for room in 1..10 {
                let (ranges, most) = parts(count, room);
                let ranges: Vec<_> = ranges.collect();
                assert!(most <= room);
                assert_eq!(ranges.len(), count.div_ceil(room));
                let all: Vec<usize> = ranges.into_iter().flatten().collect();
                assert_eq!(all, (0..count).collect::<Vec<_>>());
            }
        }
    }
}
