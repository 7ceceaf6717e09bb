use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use volley_ops::{DRAWN_WIDTH, Draw, DrawFrom, Dtype, Ops, TOP_WIDTH};
use volley_ops_candle::CandleOps;
use volley_speculate::{History, SamplingParams, distribution, sample};

/// The token is the one that sampling on the host takes from the whole row, bit by bit, whether
/// candidates decide it or not.
#[test]
fn tokens_are_those_of_sampling() {
    let ops = CandleOps::single(candle_core::Device::Cpu);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut beyond = 0;
    for case in 0..400 {
        let mut any = |n: usize| random.random_range(0..n);
        let width = [3, 64, 65, 400, 3001][any(5)];
        let allowed = width - any(3);
        let scale = [0.01, 1.0, 4.0, 12.0][any(4)];
        let params = SamplingParams {
            temperature: [0.1, 0.7, 1.0, 1.3, 2.0][any(5)],
            top_k: [0, 0, 1, 64, 65, 1000][any(6)],
            top_p: [1.0, 1.0, 0.1, 0.5, 0.95, 0.99][any(6)],
            min_p: [0.0, 0.0, 0.05, 0.9][any(4)],
            seed: case as u64,
            ..SamplingParams::default()
        };
        let mut logit = || -> f32 {
            let x = scale * random.random_range(-1.0..1.0f32);
            match case % 7 {
                // Ties, and tokens that cannot come.
                0 => (2.0 * x).round(),
                1 if x < 0.3 * scale => f32::NEG_INFINITY,
                _ => x,
            }
        };
        let mut row: Vec<f32> = (0..width).map(|_| logit()).collect();
        row[0] = 0.9 * scale;
        let position = 17 * case;
        let history = History::new(&[]);
        let expected = distribution(&row, &params, &history, allowed).unwrap();
        let expected = sample(&expected, params.seed, position).unwrap();
        let draw = Draw {
            temperature: params.temperature,
            top_k: params.top_k as u32,
            top_p: params.top_p,
            min_p: params.min_p,
            seed: params.seed,
            position: position as u64,
        };
        let logits = ops.upload(&row, 1, width, Dtype::F32).unwrap();
        let mut tops = ops.alloc(1, TOP_WIDTH, Dtype::F32).unwrap();
        ops.top(&logits, 1, 0, allowed as u32, &mut tops).unwrap();
        let mut out = ops.alloc(1, DRAWN_WIDTH, Dtype::F32).unwrap();
        let from = DrawFrom {
            tops: &tops,
            whole: Some(&logits),
            allowed: allowed as u32,
            first: 0,
        };
        ops.draw(&from, &[draw], &mut out).unwrap();
        let drawn = ops.read(&out, 0..1).unwrap();
        let logit = row[expected as usize] + 0.0;
        assert_eq!(drawn, [expected as f32, logit], "case {case}: {params:?}");
        let candidates = ops.read(&tops, 0..1).unwrap();
        beyond += usize::from(!candidates[64..128].contains(&(expected as f32)));
    }
    // The test means little unless some tokens are no candidates.
    assert!(beyond > 30, "{beyond}");
}
