//! Every target, for a short while from a fixed seed; `cargo xtask fuzz` runs them for long.

/// Inputs for each target; a few seconds in all.
const ROUNDS: u64 = 10_000;

#[test]
fn no_target_panics() {
    for target in fuzz::targets::ALL {
        if let Err(finding) = fuzz::run(target, 1, ROUNDS) {
            panic!("{} in round {}: {:?}", finding.target, finding.round, finding.input);
        }
    }
}
