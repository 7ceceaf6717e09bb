use volley_ops::Ops;

use crate::common::{Random, alloc, assert_close, bits, cpu, read, upload, wide};

#[test]
fn linear_equals_the_sum_of_products() {
    let (ops, mut random) = (cpu(), Random::new(1));
    for _ in 0..60 {
        let (rows, out, input) = (
            random.between(1, 21),
            random.between(1, 150),
            random.between(1, 700),
        );
        let (x, w) = (random.values(rows * input), random.values(out * input));
        let weight = ops.weight(w.clone(), out, input).unwrap();
        let mut y = alloc(&ops, rows + 1, out);
        ops.linear(&upload(&ops, &x, input), rows, &weight, &mut y)
            .unwrap();
        let mut want = Vec::new();
        for x in wide(&x).chunks_exact(input) {
            for w in wide(&w).chunks_exact(input) {
                want.push(x.iter().zip(w).map(|(x, w)| x * w).sum());
            }
        }
        assert_close("linear", &read(&ops, &y, rows), &want, 1e-6);
        // Rows beyond those of the pass stay as they were.
        assert!(
            ops.read(&y, rows..rows + 1)
                .unwrap()
                .iter()
                .all(|y| y.is_nan())
        );
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let (ops, mut random) = (cpu(), Random::new(2));
    // The last shape is large enough to be split over threads.
    for (rows, out, input) in [(16, 70, 300), (7, 33, 513), (40, 600, 256)] {
        let x = random.values(rows * input);
        let weight = ops.weight(random.values(out * input), out, input).unwrap();
        let mut together = alloc(&ops, rows, out);
        ops.linear(&upload(&ops, &x, input), rows, &weight, &mut together)
            .unwrap();
        let together = read(&ops, &together, rows);
        for (i, x) in x.chunks_exact(input).enumerate() {
            let mut one = alloc(&ops, 1, out);
            ops.linear(&upload(&ops, x, input), 1, &weight, &mut one)
                .unwrap();
            let among = &together[i * out..(i + 1) * out];
            assert_eq!(bits(&read(&ops, &one, 1)), bits(among), "row {i} of {rows}");
        }
    }
}

#[test]
fn embed_takes_rows_of_the_shard_and_zeros_elsewhere() {
    let (ops, mut random) = (cpu(), Random::new(3));
    let (vocab, width, first) = (77, 19, 100);
    let table = random.values(vocab * width);
    let weight = ops.weight(table.clone(), vocab, width).unwrap();
    let ids = [100, 176, 177, 99, 0, 131, 132];
    let mut out = alloc(&ops, ids.len(), width);
    ops.embed(&ids, &weight, first, &mut out).unwrap();
    let got = read(&ops, &out, ids.len());
    for (&id, got) in ids.iter().zip(got.chunks_exact(width)) {
        if (100..177).contains(&id) {
            assert_eq!(
                got,
                &table[(id - first) as usize * width..][..width],
                "id {id}"
            );
        } else {
            assert_eq!(got, vec![0.0; width], "id {id}");
        }
    }
}
