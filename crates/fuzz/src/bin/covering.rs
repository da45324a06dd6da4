//! One target under LLVM's fuzzer, which keeps each input that took a branch no other took, and goes
//! on from it. `cargo xtask fuzz --coverage` builds and runs it; the options are libFuzzer's.
//!
//! Two variables of the environment: `FERN_FUZZ_TARGET` names the target; with `FERN_FUZZ_SEED` the
//! inputs are the blind mutator's from that seed, and libFuzzer only counts the branches they take.
#![no_main]

use fuzz::{Function, Mutator, targets};
use std::cell::RefCell;

/// Feeds one input, or the blind mutator's next.
struct Feed {
    function: Function,
    blind: Option<Mutator>,
}

thread_local! {
    // A target may hold a state and is made once; libFuzzer calls from one thread.
    static FEED: RefCell<Feed> = RefCell::new(Feed::from_environment());
}

impl Feed {
    fn from_environment() -> Self {
        let name = std::env::var("FERN_FUZZ_TARGET").expect("FERN_FUZZ_TARGET names a target");
        let target = targets::find(&name).expect("FERN_FUZZ_TARGET names a target that exists");
        let seed = std::env::var("FERN_FUZZ_SEED").ok();
        let blind = seed.map(|seed| {
            let seed = seed.parse().expect("FERN_FUZZ_SEED is a number");
            Mutator::new(seed, (target.corpus)())
        });
        Self { function: (target.start)(), blind }
    }

    fn feed(&mut self, input: &[u8]) {
        match &mut self.blind {
            None => (self.function)(input),
            Some(mutator) => (self.function)(&mutator.next_input()),
        }
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| FEED.with_borrow_mut(|feed| feed.feed(input)));
