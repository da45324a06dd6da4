//! Fuzzing of every decoder of outside bytes, on the stable toolchain.
//!
//! A target is a function that takes any bytes and must return, whatever they are, and a corpus of
//! good inputs to start from. A panic is a finding; so is an input that a target accepts and its own
//! encoder then writes differently (the targets assert it). There are two ways to make inputs:
//!
//! 1. The blind one mutates the corpus from a seed, so that every finding can be made again:
//!    `cargo xtask fuzz --target NAME --seed S`. It needs nothing and is part of the tests.
//! 2. LLVM's fuzzer keeps what took a branch that nothing took before, and goes on from there:
//!    `cargo xtask fuzz --coverage`. It sees what is compared with what, so it writes magic numbers
//!    and even checksums.
//!
//! What either found is a file in `findings`, which the tests play.
#![forbid(unsafe_code)]

pub mod coverage;
pub mod kept;
mod mutate;
pub mod targets;

pub use mutate::{Mutator, Random};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A decoder that takes any bytes; boxed, as it may hold state.
pub type Function = Box<dyn FnMut(&[u8])>;

/// One decoder under test.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Good inputs to mutate.
    pub corpus: fn() -> Vec<Vec<u8>>,
    /// Makes the function under test; called once a run, so that it may hold a server.
    pub start: fn() -> Function,
}

/// An input that made a target panic.
#[derive(Debug)]
pub struct Finding {
    /// The target's name.
    pub target: &'static str,
    /// The number of the round it was found in.
    pub round: u64,
    /// The input itself.
    pub input: Vec<u8>,
}

/// Whether a target returns from an input, rather than ends by a panic.
pub fn returns(function: &mut Function, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| function(input))).is_ok()
}

/// Feeds `rounds` mutated inputs to a target; stops at the first finding.
pub fn run(target: &Target, seed: u64, rounds: u64) -> Result<(), Finding> {
    let corpus = kept::corpus(target);
    assert!(!corpus.is_empty(), "target {} has no corpus", target.name);
    let mut mutator = Mutator::new(seed, corpus);
    let mut function = (target.start)();
    for round in 0..rounds {
        let input = mutator.next_input();
        if !returns(&mut function, &input) {
            return Err(Finding { target: target.name, round, input });
        }
    }
    Ok(())
}
