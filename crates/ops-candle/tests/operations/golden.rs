use half::bf16;
use safetensors::{Dtype, SafeTensors};
use volley_ops::{GdnDims, Ops};

use crate::common::{alloc, alone, assert_close, cpu, read, upload, wide};
use crate::gdn::Tokens;

const DIMS: GdnDims = GdnDims {
    key_heads: 1,
    value_heads: 2,
    key_dim: 128,
    value_dim: 128,
    conv_kernel: 4,
};

fn load(file: &SafeTensors, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).unwrap();
    match tensor.dtype() {
        Dtype::BF16 => tensor
            .data()
            .chunks_exact(2)
            .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect(),
        Dtype::F32 => tensor
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
        other => panic!("{name} is {other:?}"),
    }
}

/// Fixtures computed elsewhere in f64: they would find a mistake shared by the operation and the
/// recurrence beside it.
#[test]
fn the_delta_rule_equals_the_golden_fixtures() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../model/tests/golden/gdn.safetensors"
    );
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let ops = cpu();
    let initial = load(&file, "initial_state");
    for (case, n) in [
        ("random", 1),
        ("random", 70),
        ("random", 200),
        ("correlated", 70),
    ] {
        let get = |name: &str, width: usize| {
            let mut values = load(&file, &format!("{case}.{name}"));
            values.truncate(n * width);
            values
        };
        let keys = DIMS.key_heads * DIMS.key_dim;
        let tokens = Tokens {
            dims: DIMS,
            q: get("q", keys),
            k: get("k", keys),
            v: get("v", DIMS.value_width()),
            g: get("g", DIMS.value_heads),
            beta: get("beta", DIMS.value_heads),
        };
        let want_out = wide(&get("out", DIMS.value_width()));
        // The fixtures hold the state at some lengths only.
        let want_state = (n > 1).then(|| wide(&load(&file, &format!("{case}.state.{n}"))));
        let check = |out: &[f32], state: &[f32]| {
            assert_close(case, out, &want_out, 1e-5);
            if let Some(want) = &want_state {
                assert_close(case, state, want, 1e-5);
            }
        };
        let batch = alone(n, 0, None);
        let mut out = alloc(&ops, n, DIMS.value_width());

        let mut state = upload(&ops, &initial, DIMS.state_len());
        ops.gdn_prefill(DIMS, &tokens.upload(&ops), &batch, &mut state, &mut out)
            .unwrap();
        check(&read(&ops, &out, n), &read(&ops, &state, 1));

        let mut state = upload(&ops, &initial, DIMS.state_len());
        let mut rows = tokens.upload(&ops);
        ops.gdn_verify(DIMS, &mut rows, &batch, &state, &mut out)
            .unwrap();
        let keep = vec![(0..n as u32).collect()];
        ops.gdn_commit(DIMS, &rows, &batch, &keep, &mut state)
            .unwrap();
        check(&read(&ops, &out, n), &read(&ops, &state, 1));
    }
}
