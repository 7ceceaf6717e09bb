//! The front of a gated-delta-net layer: causal convolution over ancestors, head norms, gates.

use volley_ops::{Batch, GdnDims, GdnRows, Keep, Result, Segment};

use crate::buf::{Buf, check};
use crate::checks::{check_batch, check_groups, check_keep, check_slots};
use crate::math::{sigmoid, silu_all, softplus, sum_of_squares};

/// Added to the sum of squares, inside the root.
const L2_EPS: f32 = 1e-6;

/// Weights of the convolution and the gates.
pub struct Gates<'a> {
    pub conv_w: &'a Buf,
    pub a_log: &'a Buf,
    pub dt_bias: &'a Buf,
}

/// The pre-convolution row `back` steps before row `i` of the segment: an ancestor, or a row of the
/// state (`[conv_kernel - 1, conv_channels]`, oldest first).
fn input_at<'a>(
    dims: GdnDims,
    segment: &Segment,
    proj: &'a [f32],
    state: &'a [f32],
    i: usize,
    back: usize,
) -> &'a [f32] {
    let channels = dims.conv_channels();
    let mut row = Some(i);
    for step in 0..=back {
        match row {
            Some(r) if step == back => {
                return &proj[(segment.rows.start + r) * dims.proj_width()..][..channels];
            }
            Some(r) => row = segment.parent(r),
            // `back - step` rows further back than the newest of the state.
            None => {
                let newest = dims.conv_kernel - 2;
                return &state[(newest - (back - step)) * channels..][..channels];
            }
        }
    }
    unreachable!("the loop returns at its last step: this is a bug")
}

pub fn gdn_prepare(
    dims: GdnDims,
    proj: &Buf,
    gates: &Gates,
    conv_state: &Buf,
    batch: &Batch,
    rows: &mut GdnRows<Buf>,
) -> Result<()> {
    let op = "gdn_prepare";
    check_batch(op, batch)?;
    check_groups(op, dims.value_heads, dims.key_heads)?;
    check_slots(op, batch, conv_state.rows(), false)?;
    let (n, channels, taps) = (batch.rows(), dims.conv_channels(), dims.conv_kernel);
    if taps == 0 {
        return check(op, "conv_kernel", 0, 1);
    }
    let key_width = dims.key_heads * dims.key_dim;
    let (value_width, heads) = (dims.value_width(), dims.value_heads);
    let proj = proj.view(op, "proj", n, dims.proj_width())?;
    let conv_w = gates.conv_w.view(op, "conv_w", channels, taps)?;
    let a_log = gates.a_log.view(op, "a_log", 1, heads)?;
    let dt_bias = gates.dt_bias.view(op, "dt_bias", 1, heads)?;
    let conv_state = conv_state.all(op, "conv_state", dims.conv_state_len())?;
    let q = rows.q.view_mut(op, "q", n, key_width)?;
    let k = rows.k.view_mut(op, "k", n, key_width)?;
    let v = rows.v.view_mut(op, "v", n, value_width)?;
    let g = rows.g.view_mut(op, "g", n, heads)?;
    let beta = rows.beta.view_mut(op, "beta", n, heads)?;

    // By tap, so that the channels lie side by side.
    let mut by_tap = vec![0.0; channels * taps];
    for (channel, w) in conv_w.chunks_exact(taps).enumerate() {
        for (tap, &w) in w.iter().enumerate() {
            by_tap[tap * channels + channel] = w;
        }
    }
    let scale = (dims.key_dim as f32).powf(-0.5);
    let mut mixed = vec![0.0; channels];
    for segment in &batch.segments {
        let state = &conv_state[segment.slot * dims.conv_state_len()..][..dims.conv_state_len()];
        for i in 0..segment.rows.len() {
            mixed.fill(0.0);
            for tap in 0..taps {
                let x = input_at(dims, segment, proj, state, i, taps - 1 - tap);
                let w = &by_tap[tap * channels..][..channels];
                for ((sum, &x), &w) in mixed.iter_mut().zip(x).zip(w) {
                    *sum += w * x;
                }
            }
            silu_all(&mut mixed);
            let row = segment.rows.start + i;
            let keys = row * key_width..(row + 1) * key_width;
            unit_heads(
                &mixed[..key_width],
                dims.key_dim,
                scale,
                &mut q[keys.clone()],
            );
            unit_heads(
                &mixed[key_width..2 * key_width],
                dims.key_dim,
                1.0,
                &mut k[keys],
            );
            v[row * value_width..][..value_width].copy_from_slice(&mixed[2 * key_width..]);
            let gates = &proj[row * dims.proj_width() + channels + value_width..][..2 * heads];
            let (b, a) = gates.split_at(heads);
            for head in 0..heads {
                beta[row * heads + head] = sigmoid(b[head]);
                g[row * heads + head] = -a_log[head].exp() * softplus(a[head] + dt_bias[head]);
            }
        }
    }
    Ok(())
}

/// Each head scaled to length `scale`.
fn unit_heads(x: &[f32], head: usize, scale: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(head).zip(out.chunks_exact_mut(head)) {
        let by = scale / (sum_of_squares(x) + L2_EPS).sqrt();
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * by);
    }
}

/// The last `conv_kernel - 1` inputs along old state and kept rows become the new state.
pub fn conv_commit(
    dims: GdnDims,
    proj: &Buf,
    batch: &Batch,
    keep: &Keep,
    conv_state: &mut Buf,
) -> Result<()> {
    let op = "conv_commit";
    check_keep(op, batch, keep)?;
    check_slots(op, batch, conv_state.rows(), true)?;
    let (channels, len) = (dims.conv_channels(), dims.conv_state_len());
    let proj = proj.view(op, "proj", batch.rows(), dims.proj_width())?;
    let states = conv_state.all_mut(op, "conv_state", len)?;
    for (segment, kept) in batch.segments.iter().zip(keep) {
        let state = &mut states[segment.slot * len..][..len];
        let shift = kept.len().min(dims.conv_kernel - 1);
        state.copy_within(shift * channels.., 0);
        let fresh = &mut state[len - shift * channels..];
        let newest = &kept[kept.len() - shift..];
        for (&row, out) in newest.iter().zip(fresh.chunks_exact_mut(channels)) {
            let row = segment.rows.start + row as usize;
            out.copy_from_slice(&proj[row * dims.proj_width()..][..channels]);
        }
    }
    Ok(())
}
