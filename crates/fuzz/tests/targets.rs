//! Every target, for a short while from a fixed seed, and every input that has ever found a bug;
//! `cargo xtask fuzz` runs the targets for long.

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

#[test]
fn what_is_kept_and_what_once_found_a_bug_is_harmless() {
    for target in fuzz::targets::ALL {
        let mut function = (target.start)();
        for input in fuzz::kept::corpus(target) {
            function(&input);
        }
    }
    for (name, target, input) in fuzz::kept::findings().unwrap() {
        let played = std::panic::catch_unwind(|| (target.start)()(&input));
        assert!(played.is_ok(), "the finding {name} is back");
    }
}
