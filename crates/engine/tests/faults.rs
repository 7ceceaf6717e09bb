//! Failing devices and ranks that die: what fails says so, what can go on does.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::faulty::{Fault, FaultyOps, Switch};
use common::{FLAT, Outcome, dflash, greedy, options, prompt, run, sampled, sources, start, wait};
use volley_engine::{Engine, EngineError, EngineHandle, EngineOptions, Speculation, Stop};
use volley_ops_candle::CandleOps;

/// An engine whose ranks fail by their switches. It keeps no prefixes, for which a drafter would go on behind
/// an answer: no rank computes anything while the switches are armed.
fn faulty(switches: &[Switch]) -> EngineHandle {
    let options = EngineOptions {
        checkpoints: 0,
        ..options(dflash(15))
    };
    faulty_with(switches, options)
}

fn faulty_with(switches: &[Switch], options: EngineOptions) -> EngineHandle {
    let ops = CandleOps::ranks(switches.len(), candle_core::Device::Cpu);
    let faulty = |(inner, switch): (CandleOps, &Switch)| FaultyOps {
        inner: match options.ahead {
            true => inner.ahead(),
            false => inner,
        },
        switch: switch.clone(),
    };
    let ops = ops.into_iter().zip(switches).map(faulty).collect();
    let options = EngineOptions {
        ranks: switches.len(),
        ..options
    };
    Engine::start_on(ops, options, sources()).unwrap()
}

/// What a drafter takes in of an answer's last step comes behind it only where the device does not go on before
/// the host knows.
fn by_host() -> EngineOptions {
    EngineOptions {
        ahead: false,
        ..options(dflash(15))
    }
}

/// The same where nothing follows an answer.
fn without_prefixes(switches: &[Switch]) -> EngineHandle {
    let options = EngineOptions {
        checkpoints: 0,
        ..by_host()
    };
    faulty_with(switches, options)
}

fn failure(stop: &Stop) -> &str {
    match stop {
        Stop::Failed(text) => text,
        other => panic!("{other:?} is no failure"),
    }
}

/// Errors and panics alike.
#[test]
fn a_failed_step_fails_its_request_and_the_next_one_works() {
    for fault in [Fault::Error, Fault::Panic] {
        fail_in_many_places(fault);
    }
}

fn fail_in_many_places(fault: Fault) {
    let switch = Switch::new(fault);
    let engine = faulty(std::slice::from_ref(&switch));
    let request = sampled(prompt(1, 20), 30, FLAT, 3);
    switch.arm(usize::MAX);
    let expected = run(&engine, request.clone()).tokens;
    let maps = usize::MAX - switch.left();
    // Anywhere in the prompt, a draft, a verification or a context update.
    let faults = (1..maps).step_by(29);
    let count = faults.len() as u64;
    for after in faults {
        switch.arm(after);
        let outcome = run(&engine, request.clone());
        let text = failure(&outcome.terminal.stop);
        assert!(text.contains("out of luck"), "{text}");
        assert_eq!(outcome.tokens, expected[..outcome.tokens.len()]);
        let next = run(&engine, request.clone());
        assert_eq!(next.tokens, expected, "after {after}");
    }
    assert!(count > 5, "{count} faults");
    assert!(engine.alive());
    let stats = engine.stats();
    assert_eq!((stats.failed, stats.finished), (count, count + 1));
    assert_eq!(stats.free_blocks, stats.total_blocks);
}

#[test]
fn a_step_that_fails_on_all_ranks_fails_its_request_only() {
    let request = sampled(prompt(1, 20), 10, FLAT, 3);
    let switches = [Switch::new(Fault::Error), Switch::new(Fault::Error)];
    let engine = faulty(&switches);
    let expected = run(&engine, request.clone()).tokens;
    for after in [5, 45] {
        switches.iter().for_each(|switch| switch.arm(after));
        failure(&run(&engine, request.clone()).terminal.stop);
        assert_eq!(run(&engine, request.clone()).tokens, expected);
    }
}

/// Nothing can be served any more, and all who ask are told so.
#[test]
fn a_device_that_dies_ends_the_engine_with_an_error_for_all() {
    let switches = [Switch::new(Fault::Death)];
    let engine = faulty(&switches);
    let running = engine.submit(greedy(prompt(1, 20), 400)).unwrap();
    running.recv_blocking().unwrap();
    let waiting = engine.submit(greedy(prompt(2, 20), 400)).unwrap();
    switches[0].arm(30);
    for updates in [&running, &waiting] {
        let terminal = wait(updates).terminal;
        let text = failure(&terminal.stop);
        assert!(text.starts_with("the engine has stopped"), "{text}");
        assert!(text.contains("device does not answer"), "{text}");
    }
    assert!(!engine.alive() && engine.failure().is_some());
    let stats = engine.stats();
    assert_eq!((stats.running, stats.waiting, stats.failed), (0, 0, 2));
    let refused = engine.submit(greedy(prompt(1, 5), 5)).unwrap_err();
    assert!(matches!(refused, EngineError::Stopped(_)), "{refused}");
}

#[test]
fn a_step_that_takes_too_long_shows_in_the_heartbeat() {
    let pause = Duration::from_millis(600);
    let switches = [Switch::new(Fault::Pause(pause))];
    let stalled = EngineOptions {
        stall_limit: Duration::from_millis(200),
        ..options(dflash(15))
    };
    let engine = faulty_with(&switches, stalled);
    let expected = run(&engine, greedy(prompt(1, 20), 5)).tokens;
    assert!(engine.alive());
    switches[0].arm(3);
    let running = engine.submit(greedy(prompt(1, 20), 5)).unwrap();
    let begun = Instant::now();
    while engine.alive() && begun.elapsed() < pause {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!engine.alive());
    assert_eq!(wait(&running).tokens, expected);
    assert!(engine.alive());
}

/// What a drafter takes in behind an answer. The answer is out, so nobody has to know: those that go on with
/// the text make it good.
#[test]
fn a_failure_behind_an_answer_fails_nobody() {
    for (fault, ranks) in [(Fault::Error, 1), (Fault::Panic, 1), (Fault::Error, 2)] {
        let switches: Vec<Switch> = (0..ranks).map(|_| Switch::new(fault)).collect();
        let failing = &switches[ranks - 1];
        let maps = |run: &mut dyn FnMut() -> Outcome| {
            failing.arm(usize::MAX);
            let outcome = run();
            (outcome, usize::MAX - failing.left())
        };
        let first = sampled(prompt(1, 20), 30, FLAT, 3);
        // Nothing follows it, as a prompt is not put off; and it begins when nothing follows the one before.
        let other = |seed| greedy(prompt(seed, 40), 1);

        // Where nothing follows an answer, its maps are those of its steps.
        let bare = without_prefixes(&switches);
        let (answer, of_steps) = maps(&mut || run(&bare, first.clone()));
        let expected = run(&bare, other(2)).tokens;
        let text = [&first.prompt[..], &answer.tokens, &prompt(3, 5)].concat();
        let goes_on = sampled(text, 20, FLAT, 7);
        let continued = run(&bare, goes_on.clone()).tokens;

        let again = |fails: bool| {
            let engine = faulty_with(&switches, by_host());
            failing.arm(if fails { of_steps + 1 } else { 0 });
            assert_eq!(run(&engine, first.clone()).tokens, answer.tokens);
            assert_eq!(run(&engine, other(2)).tokens, expected);
            assert_eq!(failing.left(), 0, "{fault:?}, {ranks} ranks");
            let (outcome, maps) = maps(&mut || {
                let outcome = run(&engine, goes_on.clone());
                run(&engine, other(4));
                outcome
            });
            assert_eq!(outcome.tokens, continued);
            assert!(outcome.terminal.usage.cached_tokens >= first.prompt.len());
            assert!(engine.alive());
            assert_eq!((engine.stats().failed, engine.stats().finished), (0, 4));
            maps
        };
        // The one that goes on takes in what was not: a map of the features, and one for each of 3 layers.
        let (usual, after_fault) = (again(false), again(true));
        assert_eq!(after_fault - usual, 1 + 3, "{fault:?}");
    }
}

#[test]
fn what_fails_twice_behind_an_answer_is_forgotten_and_a_dead_device_noticed() {
    let first = greedy(prompt(1, 20), 30);
    let steps_of = |switch: &Switch| {
        let bare = without_prefixes(std::slice::from_ref(switch));
        switch.arm(usize::MAX);
        let answer = run(&bare, first.clone()).tokens;
        (answer, usize::MAX - switch.left())
    };

    let switch = Switch::new(Fault::Error);
    let (answer, of_steps) = steps_of(&switch);
    let engine = faulty_with(std::slice::from_ref(&switch), by_host());
    switch.arm(of_steps + 1);
    run(&engine, first.clone());
    run(&engine, greedy(prompt(2, 40), 1));
    switch.arm(1);
    let goes_on = greedy([&first.prompt[..], &answer].concat(), 5);
    let outcome = run(&engine, goes_on.clone());
    assert!(failure(&outcome.terminal.stop).contains("out of luck"));
    let outcome = run(&engine, goes_on);
    assert_eq!(outcome.terminal.usage.cached_tokens, 0);
    assert_eq!((engine.stats().failed, engine.stats().finished), (1, 3));

    let switch = Switch::new(Fault::Death);
    let (answer, of_steps) = steps_of(&switch);
    let engine = faulty_with(std::slice::from_ref(&switch), by_host());
    switch.arm(of_steps + 1);
    assert_eq!(run(&engine, first).tokens, answer);
    let outcome = run(&engine, greedy(prompt(2, 9), 5));
    let text = failure(&outcome.terminal.stop);
    assert!(text.contains("device does not answer"), "{text}");
    assert!(!engine.alive());
}

/// Both ways a rank can drop out of a step while the others wait for it in a collective, which without
/// a drafter comes behind every linear map.
#[test]
fn a_lost_rank_ends_the_engine_with_an_error_for_all() {
    for fault in [Fault::Panic, Fault::Error] {
        let switches = [Switch::new(fault), Switch::new(fault)];
        let engine = faulty_with(&switches, options(Speculation::none()));
        let running = engine.submit(greedy(prompt(1, 20), 400)).unwrap();
        running.recv_blocking().unwrap();
        let waiting = engine.submit(greedy(prompt(2, 20), 400)).unwrap();
        switches[1].arm(30);
        let began = Instant::now();
        for updates in [&running, &waiting] {
            let terminal = wait(updates).terminal;
            let text = failure(&terminal.stop);
            assert!(text.starts_with("the engine has stopped"), "{text}");
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        assert!(!engine.alive());
        assert!(
            engine
                .failure()
                .is_some_and(|reason| reason.contains("rank"))
        );
        let refused = engine.submit(greedy(prompt(1, 5), 5)).unwrap_err();
        assert!(matches!(refused, EngineError::Stopped(_)), "{refused}");
        engine.shutdown();
    }
}

#[test]
fn sampling_that_cannot_work_fails_its_request_only() {
    let engine = start(EngineOptions {
        max_running: 2,
        ..options(dflash(15))
    });
    let good = sampled(prompt(1, 20), 40, FLAT, 3);
    let expected = run(&engine, good.clone()).tokens;
    // The bias makes the token come out, and the penalty then lifts its logit to infinity.
    let mut bad = greedy(prompt(2, 8), 20);
    bad.sampling.logit_bias.insert(7, f32::MAX);
    bad.sampling.repetition_penalty = 0.5;
    let company = engine.submit(good).unwrap();
    let outcome = run(&engine, bad);
    let text = failure(&outcome.terminal.stop);
    assert!(text.contains("token 7"), "{text}");
    assert_eq!(outcome.tokens, [7]);
    assert_eq!(wait(&company).tokens, expected);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let refusal = |options| {
        Engine::start(options, sources())
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let base = || options(dflash(15));
    let three_ranks = refusal(EngineOptions { ranks: 3, ..base() });
    assert!(three_ranks.contains('3'), "{three_ranks}");
    let cases = [
        (EngineOptions { ranks: 0, ..base() }, "at least 1 rank"),
        (
            EngineOptions {
                prefill_chunk: 0,
                ..base()
            },
            "prefill chunk",
        ),
        (
            EngineOptions {
                max_running: 0,
                ..base()
            },
            "running requests",
        ),
        (
            EngineOptions {
                max_model_len: Some(5000),
                ..base()
            },
            "between 2 and the model's 4096",
        ),
        (
            EngineOptions {
                max_model_len: Some(1),
                ..base()
            },
            "between 2",
        ),
    ];
    for (options, expected) in cases {
        let text = refusal(options);
        assert!(text.contains(expected), "{text}");
    }
    let mut no_drafter = sources();
    no_drafter.drafter = None;
    let error = Engine::start(base(), no_drafter).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("needs a drafter"), "{error}");
}
