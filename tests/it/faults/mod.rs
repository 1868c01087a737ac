//! Fault rounds: servers and Postgres are killed at random moments, one by one and together, under
//! writers that repeat what was not acknowledged (and some that was) and readers that come back.
//! Whatever was killed when, every acknowledged click counts exactly once, the levels add up,
//! no frame is missing, and readers know what a fresh snapshot says.
//!
//! `make faults` has many rounds, `make test` a few. A round is drawn from its seed, which is
//! printed first: `PAGETIDE_FAULT_SEED=0x… PAGETIDE_FAULT_ROUNDS=1 make faults` has the same round
//! again, save that the machine takes its own time, so that a kill hits another moment of a commit.

#![allow(clippy::print_stdout, reason = "says what was seen")]

mod checks;
mod line;
mod load;
mod plan;
mod readers;
mod round;
mod seen;

use std::panic::AssertUnwindSafe;
use std::str::FromStr;

use futures_util::FutureExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A number from the environment, as it is printed or in decimal.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => u64::from_str(&text),
    };
    Some(number.unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds() {
    let rounds = setting("PAGETIDE_FAULT_ROUNDS").unwrap_or(5);
    let mut seed = setting("PAGETIDE_FAULT_SEED").unwrap_or_else(rand::random);
    println!("{rounds} rounds from seed {seed:#018x}");
    let mut failed = Vec::new();
    for number in 1..=rounds {
        println!("round {number} seed {seed:#018x}");
        // One that fails does not keep the others from being had; the panic has said why.
        match AssertUnwindSafe(round::run(seed)).catch_unwind().await {
            Ok(account) => println!("    {account}"),
            Err(_) => failed.push(format!("{seed:#018x}")),
        }
        // The first round has the seed that was given, so that each can be had alone.
        seed = StdRng::seed_from_u64(seed).random();
    }
    assert!(failed.is_empty(), "rounds that failed: {failed:?}");
}
