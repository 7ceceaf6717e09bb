use crate::golden::{
    Golden, LIMITS, Text, argmax, assert_close, assert_logits, chunks, cpu, target,
};

const FOLDERS: [&str; 3] = ["target", "target_flat", "target_wide"];

fn goldens(folder: &str) -> Golden {
    Golden::read(&format!("{folder}_goldens"))
}

#[test]
fn logits_in_one_go() {
    let ops = cpu();
    for folder in FOLDERS {
        let golden = goldens(folder);
        let ids = golden.ids("ids");
        let mut model = target(&ops, folder, &[]);
        for n in [1, 3, 63, 64, 65, 150] {
            model.reset(&ops, 0).unwrap();
            let logits = Text::new(0, LIMITS.blocks).prefill(&ops, &mut model, &ids[..n]);
            let expected = golden.floats(&format!("logits.{n}"));
            let found = &logits[logits.len() - expected.len()..];
            assert_logits(&format!("{folder} logits.{n}"), found, &expected);
        }
    }
}

#[test]
fn logits_token_by_token() {
    let ops = cpu();
    for folder in FOLDERS {
        let golden = goldens(folder);
        let mut model = target(&ops, folder, &[]);
        let mut text = Text::new(1, LIMITS.blocks);
        let logits: Vec<f32> = golden
            .ids("ids")
            .iter()
            .flat_map(|&id| text.step(&ops, &mut model, id))
            .collect();
        assert_logits(folder, &logits, &golden.floats("logits.150"));
    }
}

#[test]
fn logits_in_random_chunks() {
    let ops = cpu();
    for folder in FOLDERS {
        let golden = goldens(folder);
        let ids = golden.ids("ids");
        let mut model = target(&ops, folder, &[]);
        for seed in 0..4 {
            model.reset(&ops, 2).unwrap();
            let mut text = Text::new(2, LIMITS.blocks);
            let mut logits = Vec::new();
            for n in chunks(ids.len(), 70, seed) {
                let past = text.past;
                let rows = text.prefill(&ops, &mut model, &ids[past..past + n]);
                logits.extend(rows);
            }
            assert_logits(folder, &logits, &golden.floats("logits.150"));
        }
    }
}

#[test]
fn residuals_final_hidden_and_states_after_70_tokens() {
    let ops = cpu();
    for folder in FOLDERS {
        let golden = goldens(folder);
        let ids = &golden.ids("ids")[..70];
        let layers = target(&ops, folder, &[]).config().layers.len();
        let all: Vec<usize> = (0..layers).collect();
        let mut model = target(&ops, folder, &all);
        Text::new(0, LIMITS.blocks).prefill(&ops, &mut model, ids);

        let hidden = model.config().hidden_size;
        let taps = volley_ops::Ops::read(&ops, model.taps(), 0..70).unwrap();
        let by_layer: Vec<f32> = (0..layers)
            .flat_map(|layer| {
                let column = layer * hidden;
                taps.chunks(layers * hidden)
                    .flat_map(move |row| row[column..column + hidden].to_vec())
                    .collect::<Vec<_>>()
            })
            .collect();
        assert_close("residuals", &by_layer, &golden.floats("residuals"));
        let last = volley_ops::Ops::read(&ops, model.hidden(), 0..70).unwrap();
        assert_close("final", &last, &golden.floats("final"));

        for layer in (0..layers).filter(|i| i % 4 != 3) {
            let (state, conv) = model.state(&ops, layer, 0).unwrap();
            assert_close(
                "state",
                &state,
                &golden.floats(&format!("gdn.{layer}.state")),
            );
            assert_close("conv", &conv, &golden.floats(&format!("gdn.{layer}.conv")));
        }
        assert!(model.state(&ops, 3, 0).is_err());
    }
}

#[test]
fn taps_come_in_the_order_asked_for() {
    let ops = cpu();
    let golden = goldens("target");
    let ids = &golden.ids("ids")[..70];
    let mut model = target(&ops, "target", &[7, 2]);
    Text::new(0, LIMITS.blocks).prefill(&ops, &mut model, ids);
    let taps = volley_ops::Ops::read(&ops, model.taps(), 69..70).unwrap();
    let residuals = golden.floats("residuals");
    let of = |layer: usize| &residuals[(layer * 70 + 69) * 64..][..64];
    assert_close("taps", &taps, &[of(7), of(2)].concat());
}

#[test]
fn sequences_of_a_batch_do_not_see_each_other() {
    let ops = cpu();
    let golden = goldens("target");
    let ids = golden.ids("ids");
    let mut model = target(&ops, "target", &[]);
    let mut texts = [Text::new(0, LIMITS.blocks), Text::new(2, LIMITS.blocks)];
    // The second text lags behind by 30 tokens and starts in the second pass.
    texts[0].prefill(&ops, &mut model, &ids[..30]);
    for start in (30..65).step_by(5) {
        let first = texts[0].segment(&ops, 0, 5);
        let second = texts[1].segment(&ops, 5, 5);
        let rows = [&ids[start..start + 5], &ids[start - 30..start - 25]].concat();
        let batch = volley_ops::Batch {
            segments: vec![first, second],
        };
        model.prefill(&ops, &rows, &batch).unwrap();
        texts.iter_mut().for_each(|text| text.past += 5);
    }
    let logits = model.logits(&ops, &[4]).unwrap();
    assert_close("first of two", &logits, &golden.floats("logits.65"));
    let expected = golden.floats("logits.150");
    let row = &expected[34 * 512..35 * 512];
    assert_close("second of two", &model.logits(&ops, &[9]).unwrap(), row);
    assert_eq!(argmax(row), argmax(&model.logits(&ops, &[9]).unwrap()));
}

#[test]
fn calls_that_do_not_fit_are_errors() {
    let ops = cpu();
    let mut model = target(&ops, "target", &[]);
    let text = Text::new(0, LIMITS.blocks);
    let batch = text.batch(&ops, 2);
    let fails = |what: &str, error: volley_model::Error| {
        let message = error.to_string();
        assert!(message.contains(what), "{message}");
    };
    fails(
        "one per row",
        model.prefill(&ops, &[1], &batch).unwrap_err(),
    );
    fails(
        "token ids below 512",
        model.prefill(&ops, &[1, 512], &batch).unwrap_err(),
    );
    let long = text.batch(&ops, LIMITS.verify_rows + 1);
    let ids = vec![1; LIMITS.verify_rows + 1];
    fails("1..=48", model.verify(&ops, &ids, &long).unwrap_err());
    fails(
        "last verify",
        model.commit(&ops, &batch, &vec![vec![0]]).unwrap_err(),
    );
    fails("rows of the pass", model.logits(&ops, &[0]).unwrap_err());
    fails("below 3", model.reset(&ops, 3).unwrap_err());
    model.verify(&ops, &[1, 2], &batch).unwrap();
    fails(
        "a path",
        model.commit(&ops, &batch, &vec![vec![1]]).unwrap_err(),
    );
    fails(
        "one per segment",
        model.commit(&ops, &batch, &vec![]).unwrap_err(),
    );
    fails("rows of the pass", model.logits(&ops, &[2]).unwrap_err());
    let mut tree = batch.clone();
    tree.segments[0].parents = Some(vec![None, None]);
    fails("a chain", model.prefill(&ops, &[1, 2], &tree).unwrap_err());
}
