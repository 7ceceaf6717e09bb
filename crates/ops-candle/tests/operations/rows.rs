use volley_ops::{GdnDims, NormKind, Ops};

use crate::common::{Random, alloc, assert_close, bits, cpu, norm, read, sigmoid, upload, wide};

const KINDS: [(NormKind, f64); 2] = [(NormKind::Plain, 0.0), (NormKind::ZeroCentred, 1.0)];

#[test]
fn rms_norms_follow_the_definition() {
    let (ops, mut random) = (cpu(), Random::new(10));
    for round in 0..20 {
        let (rows, width) = (random.between(1, 20), random.between(1, 300));
        let (kind, shift) = KINDS[round % 2];
        let (x, delta, w) = (
            random.values(rows * width),
            random.values(rows * width),
            random.values(width),
        );
        let weight = upload(&ops, &w, width);
        let mut out = alloc(&ops, rows, width);
        ops.rms_norm(
            &upload(&ops, &x, width),
            rows,
            &weight,
            kind,
            1e-6,
            &mut out,
        )
        .unwrap();
        let want: Vec<f64> = wide(&x)
            .chunks_exact(width)
            .flat_map(|x| norm(x, &wide(&w), shift, 1e-6))
            .collect();
        assert_close("rms_norm", &read(&ops, &out, rows), &want, 1e-6);

        let mut residual = upload(&ops, &x, width);
        let delta_buf = upload(&ops, &delta, width);
        ops.add_rms_norm(
            &delta_buf,
            rows,
            &mut residual,
            &weight,
            kind,
            1e-6,
            &mut out,
        )
        .unwrap();
        let sum: Vec<f64> = wide(&x)
            .iter()
            .zip(wide(&delta))
            .map(|(x, d)| x + d)
            .collect();
        assert_close("residual", &read(&ops, &residual, rows), &sum, 1e-6);
        let want: Vec<f64> = sum
            .chunks_exact(width)
            .flat_map(|x| norm(x, &wide(&w), shift, 1e-6))
            .collect();
        assert_close("add_rms_norm", &read(&ops, &out, rows), &want, 1e-6);

        ops.add(&delta_buf, rows, &mut residual).unwrap();
        let sum: Vec<f64> = sum.iter().zip(wide(&delta)).map(|(x, d)| x + d).collect();
        assert_close("add", &read(&ops, &residual, rows), &sum, 1e-6);
    }
}

#[test]
fn gated_norm_is_per_head_and_before_the_gate() {
    let (ops, mut random) = (cpu(), Random::new(11));
    let dims = GdnDims {
        key_heads: 2,
        value_heads: 4,
        key_dim: 24,
        value_dim: 40,
        conv_kernel: 4,
    };
    let (rows, width) = (5, dims.value_width());
    let (x, proj, w) = (
        random.values(rows * width),
        random.values(rows * dims.proj_width()),
        random.values(40),
    );
    let mut out = alloc(&ops, rows, width);
    let (xb, pb, wb) = (
        upload(&ops, &x, width),
        upload(&ops, &proj, dims.proj_width()),
        upload(&ops, &w, 40),
    );
    ops.gated_norm(dims, &xb, &pb, rows, &wb, 1e-6, &mut out)
        .unwrap();
    let (x, proj, w) = (wide(&x), wide(&proj), wide(&w));
    let mut want = Vec::new();
    for row in 0..rows {
        for head in 0..4 {
            let n = norm(&x[row * width + head * 40..][..40], &w, 0.0, 1e-6);
            let z = &proj[row * dims.proj_width() + dims.conv_channels() + head * 40..][..40];
            want.extend(n.iter().zip(z).map(|(n, z)| n * z * sigmoid(*z)));
        }
    }
    assert_close("gated_norm", &read(&ops, &out, rows), &want, 1e-6);
}

#[test]
fn swiglu_gates_the_first_half_onto_the_second() {
    let (ops, mut random) = (cpu(), Random::new(12));
    let (rows, width) = (6, 37);
    let x: Vec<f32> = random
        .values(rows * 2 * width)
        .iter()
        .map(|x| 10.0 * x)
        .collect();
    let mut out = alloc(&ops, rows, width);
    ops.swiglu(&upload(&ops, &x, 2 * width), rows, &mut out)
        .unwrap();
    let want: Vec<f64> = wide(&x)
        .chunks_exact(2 * width)
        .flat_map(|x| {
            (0..width)
                .map(|i| x[i] * sigmoid(x[i]) * x[width + i])
                .collect::<Vec<_>>()
        })
        .collect();
    assert_close("swiglu", &read(&ops, &out, rows), &want, 1e-6);
}

#[test]
fn moving_rows_changes_no_value() {
    let (ops, mut random) = (cpu(), Random::new(13));
    let x = random.values(5 * 8);
    let buf = upload(&ops, &x, 8);
    let mut out = alloc(&ops, 4, 8);
    ops.gather(&buf, &[4, 0, 4, 2], &mut out).unwrap();
    let want: Vec<f32> = [4, 0, 4, 2]
        .iter()
        .flat_map(|&i| x[i * 8..(i + 1) * 8].to_vec())
        .collect();
    assert_eq!(bits(&read(&ops, &out, 4)), bits(&want));

    let mut wider = upload(&ops, &[7.0; 3 * 20], 20);
    ops.copy_columns(&buf, 2, &mut wider, 5).unwrap();
    let got = read(&ops, &wider, 3);
    for (i, got) in got.chunks_exact(20).enumerate() {
        let mut want = vec![7.0; 20];
        if i < 2 {
            want[5..13].copy_from_slice(&x[i * 8..(i + 1) * 8]);
        }
        assert_eq!(got, want, "row {i}");
    }

    ops.zero(&mut wider, 1..2).unwrap();
    let zeroed = read(&ops, &wider, 3);
    assert_eq!(zeroed[20..40], [0.0; 20]);
    assert_eq!((&zeroed[..20], &zeroed[40..]), (&got[..20], &got[40..]));
}

#[test]
fn rows_of_norms_and_gates_do_not_depend_on_each_other() {
    let (ops, mut random) = (cpu(), Random::new(14));
    let (rows, width) = (16, 96);
    let x = random.values(rows * width);
    let w = upload(&ops, &random.values(width), width);
    let mut normed = alloc(&ops, rows, width);
    let mut gated = alloc(&ops, rows, width / 2);
    let all = upload(&ops, &x, width);
    ops.rms_norm(&all, rows, &w, NormKind::ZeroCentred, 1e-6, &mut normed)
        .unwrap();
    ops.swiglu(&all, rows, &mut gated).unwrap();
    for (i, x) in x.chunks_exact(width).enumerate() {
        let one = upload(&ops, x, width);
        let (mut n, mut g) = (alloc(&ops, 1, width), alloc(&ops, 1, width / 2));
        ops.rms_norm(&one, 1, &w, NormKind::ZeroCentred, 1e-6, &mut n)
            .unwrap();
        ops.swiglu(&one, 1, &mut g).unwrap();
        assert_eq!(
            bits(&read(&ops, &n, 1)),
            bits(&ops.read(&normed, i..i + 1).unwrap())
        );
        assert_eq!(
            bits(&read(&ops, &g, 1)),
            bits(&ops.read(&gated, i..i + 1).unwrap())
        );
    }
}
