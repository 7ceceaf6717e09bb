use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use candle_core::Device;
use volley_ops::{Error, Ops};
use volley_ops_candle::CandleOps;

use crate::common::{Random, alloc, bits, read, upload};

#[test]
fn ranks_sum_in_rank_order_and_gather_side_by_side() {
    for n in [1, 2, 4] {
        let (rows, width) = (5, 7);
        let inputs: Vec<Vec<Vec<f32>>> = (0..50)
            .map(|round| {
                (0..n)
                    .map(|rank| Random::new(round * 10 + rank).values(rows * width))
                    .collect()
            })
            .collect();
        thread::scope(|scope| {
            for ops in CandleOps::ranks(n as usize, Device::Cpu) {
                let inputs = &inputs;
                scope.spawn(move || {
                    assert_eq!(ops.ranks(), n as usize);
                    for parts in inputs {
                        let mut x = upload(&ops, &parts[ops.rank()], width);
                        let mut gathered = alloc(&ops, rows, n as usize * width);
                        ops.all_gather(&x, rows, &mut gathered).unwrap();
                        let want: Vec<f32> = (0..rows)
                            .flat_map(|row| {
                                parts
                                    .iter()
                                    .flat_map(move |p| p[row * width..][..width].to_vec())
                            })
                            .collect();
                        assert_eq!(bits(&read(&ops, &gathered, rows)), bits(&want));

                        // The last row takes no part.
                        ops.all_reduce(&mut x, rows - 1).unwrap();
                        let mut want = parts[ops.rank()].clone();
                        for (i, want) in want.iter_mut().enumerate().take((rows - 1) * width) {
                            *want = parts[1..]
                                .iter()
                                .fold(parts[0][i], |sum, part| sum + part[i]);
                        }
                        assert_eq!(bits(&read(&ops, &x, rows)), bits(&want));
                    }
                });
            }
        });
    }
}

/// Runs `body` for each rank and gives the results; panics rather than hang.
fn within_five_seconds<T: Send + 'static>(n: usize, body: fn(CandleOps) -> T) -> Vec<T> {
    let (sender, receiver) = mpsc::channel();
    for ops in CandleOps::ranks(n, Device::Cpu) {
        let sender = sender.clone();
        thread::spawn(move || {
            let rank = ops.rank();
            let _ = sender.send((rank, body(ops)));
        });
    }
    let mut results: Vec<_> = (0..n)
        .map(|_| receiver.recv_timeout(Duration::from_secs(5)).unwrap())
        .collect();
    results.sort_by_key(|(rank, _)| *rank);
    results.into_iter().map(|(_, result)| result).collect()
}

fn reduce(ops: &CandleOps, rows: usize) -> Result<(), Error> {
    ops.all_reduce(&mut upload(ops, &vec![1.0; rows], 1), rows)
}

#[test]
fn a_lost_rank_fails_the_others_instead_of_hanging_them() {
    let results = within_five_seconds(3, |ops| {
        reduce(&ops, 2).unwrap();
        if ops.rank() == 1 {
            return None;
        }
        let first = reduce(&ops, 2).unwrap_err();
        let again = reduce(&ops, 2).unwrap_err();
        Some((first, again))
    });
    for (rank, result) in results.into_iter().enumerate() {
        match (rank, result) {
            (1, None) => {}
            (_, Some((first, again))) => {
                for error in [first, again] {
                    let Error::RankLost {
                        op,
                        rank: waiting,
                        ranks,
                    } = error
                    else {
                        panic!("{error}");
                    };
                    assert_eq!((op, waiting, ranks), ("all_reduce", rank, 3));
                }
            }
            _ => panic!("rank {rank} gave the wrong kind of result"),
        }
    }
}

#[test]
fn ranks_that_hand_in_different_lengths_all_hear_of_it() {
    let errors = within_five_seconds(2, |ops| reduce(&ops, 1 + ops.rank()).unwrap_err());
    for error in errors {
        assert!(
            matches!(
                error,
                Error::Shape {
                    op: "all_reduce",
                    ..
                }
            ),
            "{error}"
        );
    }
}
