//! One target under LLVM's fuzzer, which keeps each input that took a branch no other took, and goes
//! on from it. `cargo xtask fuzz --coverage` builds and runs it; the options are libFuzzer's, and
//! `FERN_FUZZ_TARGET` in the environment names the target.
#![no_main]

use fuzz::{Function, targets};
use std::cell::RefCell;

thread_local! {
    // A target may hold a state and is made once; libFuzzer calls from one thread.
    static TARGET: RefCell<Function> = RefCell::new(named_target());
}

fn named_target() -> Function {
    let name = std::env::var("FERN_FUZZ_TARGET").expect("FERN_FUZZ_TARGET names a target");
    (targets::find(&name).expect("FERN_FUZZ_TARGET names a target that exists").start)()
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET.with_borrow_mut(|target| target(input)));
