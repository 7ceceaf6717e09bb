//! What the kernels ask of shapes.

use volley_ops::{AttentionDims, Error, GdnDims, NormKind, Result};

use crate::params::{GDN_DIM, TAPS};

/// An error unless two numbers agree.
pub fn check(op: &'static str, what: &'static str, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    refuse(op, what, expected.to_string(), got.to_string())
}

/// An error unless `index < len`.
pub fn check_index(op: &'static str, what: &'static str, index: usize, len: usize) -> Result<()> {
    if index < len {
        return Ok(());
    }
    Err(Error::Index {
        op,
        what,
        index,
        len,
    })
}

/// A shape error.
pub fn refuse<T>(
    op: &'static str,
    what: &'static str,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Result<T> {
    Err(Error::Shape {
        op,
        what,
        expected: expected.into(),
        got: got.into(),
    })
}

/// An error unless `n` is a multiple of `unit`.
pub fn check_multiple(op: &'static str, what: &'static str, n: usize, unit: usize) -> Result<()> {
    if n.is_multiple_of(unit) {
        return Ok(());
    }
    refuse(op, what, format!("a multiple of {unit}"), n.to_string())
}

/// Key heads divide the value (or query) heads.
pub fn check_groups(op: &'static str, heads: usize, shared: usize) -> Result<()> {
    if shared > 0 && heads.is_multiple_of(shared) {
        return Ok(());
    }
    let expected = format!("a multiple of {shared} heads");
    refuse(op, "number of heads", expected, heads.to_string())
}

/// The kernels know one width of head and four taps.
pub fn check_gdn(op: &'static str, dims: GdnDims) -> Result<()> {
    check(op, "key_dim", dims.key_dim, GDN_DIM)?;
    check(op, "value_dim", dims.value_dim, GDN_DIM)?;
    check(op, "conv_kernel", dims.conv_kernel, TAPS)?;
    check_groups(op, dims.value_heads, dims.key_heads)
}

/// Heads of 128 or 256, and a rotation whose halves fall on whole lanes.
pub fn check_attention(op: &'static str, dims: AttentionDims) -> Result<()> {
    check_groups(op, dims.heads, dims.kv_heads)?;
    if ![128, 256].contains(&dims.head_dim) {
        return refuse(op, "head_dim", "128 or 256", dims.head_dim.to_string());
    }
    let lane = dims.head_dim / 32;
    let half = dims.rotary_dim / 2;
    let fits = dims.rotary_dim <= dims.head_dim
        && dims.rotary_dim.is_multiple_of(2 * lane)
        && (half / lane).is_power_of_two();
    if fits {
        return Ok(());
    }
    let expected = format!("{} times a power of two", 2 * lane);
    refuse(op, "rotary_dim", expected, dims.rotary_dim.to_string())
}

/// What is added to a normalisation weight.
pub fn shift(kind: NormKind) -> f32 {
    match kind {
        NormKind::Plain => 0.0,
        NormKind::ZeroCentred => 1.0,
    }
}
