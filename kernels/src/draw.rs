//! Tokens drawn from rows of logits.

use volley_ops::{CANDIDATES, DRAWN_WIDTH, Draw, DrawFrom, Result, TOP_WIDTH};

use crate::buf::Buf;
use crate::dims::{check, check_index};
use crate::driver::{Address, Driver};
use crate::error::in_op;
use crate::kernel::{CUT, DRAW, RACE};
use crate::params::{
    CUT_BINS, CUT_DIGITS, DRAW_SLICE, DrawParams, DrawRow, FIRST_BYTES, MOST_RANKS, OPEN_ROW_BYTES,
    TOP_SLICE, TOP_SLICES,
};
use crate::scratch::Scratch;

/// Ids that the digits of a key hold.
const MOST_IDS: usize = MOST_RANKS * TOP_SLICES * TOP_SLICE;
const _: () = assert!(MOST_IDS <= 1 << 22, "digits of cut.cu");

/// As [`volley_ops::Ops::draw`] says; the draws lie at `at`, too. Rows that candidates do not decide are
/// kept open in the scratch memory.
pub fn draw(
    driver: &dyn Driver,
    scratch: &Scratch,
    ranks: usize,
    from: &DrawFrom<'_, Buf>,
    draws: &[Draw],
    at: Address,
    out: &Buf,
) -> Result<()> {
    let op = "draw";
    check_index(op, "ranks", ranks, MOST_RANKS + 1)?;
    let rows = from.first + draws.len();
    let tops = from.tops.float(op, "tops", rows, ranks * TOP_WIDTH)?;
    let drawn = out.float(op, "out", rows, DRAWN_WIDTH)?;
    let drawn = DrawRows {
        tops: row(tops, from.first, 4 * ranks * TOP_WIDTH),
        ranks,
        whole: match from.whole {
            Some(whole) => Some(WholeRows {
                logits: whole.float(op, "whole", draws.len(), whole.width())?,
                width: whole.width(),
                allowed: from.allowed,
            }),
            None => None,
        },
        out: row(drawn, from.first, 4 * DRAWN_WIDTH),
    };
    // SAFETY: the buffers were checked, and there are as many draws as rows.
    unsafe { draw_at(driver, scratch, &drawn, draws, at) }
}

/// Where rows that tokens are drawn from lie, a row of each for every draw.
pub struct DrawRows {
    pub tops: Address,
    pub ranks: usize,
    pub whole: Option<WholeRows>,
    pub out: Address,
}

/// Rows of logits.
#[derive(Clone, Copy)]
pub struct WholeRows {
    pub logits: Address,
    pub width: usize,
    pub allowed: u32,
}

/// As [`draw`], of rows at addresses.
///
/// # Safety
/// There are rows, and draws at `at`, for all draws.
pub unsafe fn draw_at(
    driver: &dyn Driver,
    scratch: &Scratch,
    rows: &DrawRows,
    draws: &[Draw],
    at: Address,
) -> Result<()> {
    let (op, ranks) = ("draw", rows.ranks);
    let mut params = DrawParams {
        tops: rows.tops,
        draws: at,
        out: rows.out,
        logits: 0,
        open: 0,
        masses: 0,
        counts: 0,
        firsts: 0,
        ranks: ranks as i32,
        width: 0,
        columns: 0,
        digit: 0,
        by_mass: 0,
        padding: 0,
    };
    let open = draws.iter().filter(|draw| !draw.of_candidates()).count();
    let Some(whole) = rows.whole.filter(|_| open > 0) else {
        check(op, "draws that need whole rows", open, 0)?;
        // SAFETY: the caller vouches for the rows.
        return unsafe { DRAW.launch(driver, [draws.len(), 1, 1], &params) }.map_err(in_op(op));
    };
    let WholeRows {
        logits,
        width,
        allowed,
    } = whole;
    check_index(op, "ids of a row", width, MOST_IDS + 1)?;
    params.width = width as i32;
    params.columns = width.min(allowed as usize) as i32;
    let slices = width.div_ceil(DRAW_SLICE);
    let row_bytes = OPEN_ROW_BYTES + slices * FIRST_BYTES + CUT_BINS * 12;
    check_index(op, "bytes of scratch memory", row_bytes, scratch.bytes + 1)?;
    let most = (scratch.bytes / row_bytes).max(1);
    for (part, draws) in draws.chunks(most).enumerate() {
        let (n, first) = (draws.len(), part * most);
        let open = scratch.memory.address();
        let firsts = row(open, n, OPEN_ROW_BYTES);
        let masses = row(firsts, n, slices * FIRST_BYTES);
        let params = DrawParams {
            tops: row(params.tops, first, 4 * ranks * TOP_WIDTH),
            draws: row(at, first, size_of::<DrawRow>()),
            out: row(params.out, first, 4 * DRAWN_WIDTH),
            logits: row(logits, first, 4 * width),
            open,
            masses,
            counts: row(masses, n, 8 * CUT_BINS),
            firsts,
            ..params
        };
        // SAFETY: the caller vouches for the rows, and the scratch memory holds this part.
        unsafe { launch(driver, [slices, n, 1], draws, params) }.map_err(in_op(op))?;
    }
    Ok(())
}

/// # Safety
/// As of [`crate::kernel::Kernel::launch`].
unsafe fn launch(
    driver: &dyn Driver,
    grid: [usize; 3],
    draws: &[Draw],
    params: DrawParams,
) -> crate::error::Result<()> {
    let open = || draws.iter().filter(|draw| !draw.of_candidates());
    let by_count = open().any(|draw| draw.top_k > CANDIDATES as u32);
    let by_mass = open().any(|draw| draw.top_p < 1.0);
    // SAFETY: the caller vouches for the addresses.
    unsafe {
        DRAW.launch(driver, [draws.len(), 1, 1], &params)?;
        for (by_mass, wanted) in [(0, by_count), (1, by_mass)] {
            for digit in (0..CUT_DIGITS).filter(|_| wanted) {
                let cut = DrawParams {
                    digit,
                    by_mass,
                    ..params
                };
                CUT.launch(driver, grid, &cut)?;
            }
        }
        RACE.launch(driver, grid, &params)
    }
}

/// The address behind so many rows of so many bytes.
fn row(address: Address, rows: usize, bytes: usize) -> Address {
    address + (rows * bytes) as Address
}
