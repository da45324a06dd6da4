//! Patterns that take for ever, and what must stay as PCRE2 has it.

use super::*;
use errors::Code as ErrorCode;
use limits::{Account, Interrupt, enter};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

struct FiresAfter(AtomicU32);

impl Interrupt for FiresAfter {
    fn check(&self) -> errors::Result<()> {
        if self.0.fetch_sub(1, Relaxed) > 1 {
            return Ok(());
        }
        self.0.store(1, Relaxed);
        Err(Error::new(ErrorCode::INTERRUPTED, "operation was interrupted"))
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern, Options { dotall: true, ..Options::default() }).expect(pattern)
}

/// The pattern and the text, repeated.
const ENDLESS: &[(&str, &str)] = &[
    (r"(.+)\1{3}z", "ab"),
    (r"(a*)*\1b", "a"),
    (r"(?:a{1,500}){1,100}[bz]", "a"),
    (r".*.*.*.*[yz]", "ab"),
    (r"(x+x+)+y", "x"),
    (r"(?=.*[yz])a", "a"),
    (r"(?<=ab)(.+?)+[yz]", "ab"),
    (r"^(a|aa)+$", "aaab"),
    (r"(?:(?:a?){50}){50}b|[yz]", "a"),
    (r"(*NO_JIT)(a|b)*[yz]", "ab"),
];

#[test]
fn what_would_take_for_ever_is_stopped_or_over_a_limit() {
    for (pattern, text) in ENDLESS {
        let regex = regex(pattern);
        for length in [100, SHORT_BYTES, 1_000, 100_000, 4 << 20] {
            let text = text.repeat(length / text.len());
            let _scope = enter(Arc::new(FiresAfter(AtomicU32::new(3))), Account::new(1 << 30));
            let started = Started::now();
            match regex.is_match(&text) {
                Err(MatchError::Operation(error)) => {
                    assert_eq!(error.code(), ErrorCode::INTERRUPTED);
                }
                Err(MatchError::Match(_)) | Ok(_) => {}
            }
            // Some milliseconds; what is asserted allows for a loaded machine and a slow build.
            assert!(started.elapsed() < Duration::from_secs(5), "{pattern} over {length}");
        }
    }
}

/// How long a test has run; what it measures is the processor, not the server.
struct Started(std::time::Instant);

impl Started {
    #[expect(clippy::disallowed_methods, reason = "a bound on real time is what is tested")]
    fn now() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[test]
fn a_pattern_that_needs_more_steps_is_tried_again_with_callouts() {
    let text = format!("{}c", "ab".repeat(1 << 20));
    assert!(regex("(?:ab){10}c").is_match(&text).expect("it is found"));
    assert!(regex("[ab]*c").is_match(&text).expect("it is found"));
}

#[test]
fn a_pattern_lowers_its_limits_and_never_raises_them() {
    let text = "x".repeat(60);
    let over = |pattern: &str| match regex(pattern).is_match(&text) {
        Err(MatchError::Match(text)) => text,
        other => panic!("{pattern}: {other:?}"),
    };
    assert_eq!(over("(*LIMIT_MATCH=10)(x+x+)+y|z"), "match limit exceeded");
    assert_eq!(over("(*LIMIT_MATCH=4000000000)(x+x+)+[yz]"), "match limit exceeded");
    assert!(over("(*NO_JIT)(*LIMIT_HEAP=0)(x+x+)+[yz]").contains("limit exceeded"));
}

#[test]
fn settings_stay_in_front_and_a_wrong_pattern_is_told_with_the_clients_offset() {
    let cases = [
        ("abc", "(?C)abc"),
        ("(*UTF)(*LIMIT_MATCH=3)a|b", "(*UTF)(*LIMIT_MATCH=3)(?C)a|b"),
        ("(*COMMIT)a", "(?C)(*COMMIT)a"),
        ("", "(?C)"),
    ];
    for (pattern, expected) in cases {
        assert_eq!(with_callout(pattern, Options::default()).as_deref(), Some(expected));
    }
    for pattern in ["*a", "+a", "?a", "{2}a"] {
        assert_eq!(with_callout(pattern, Options::default()), None);
    }
    for (pattern, offset) in [("a(b", 3), ("*a", 0), ("[a", 2), ("a**?+", 2)] {
        match Regex::new(pattern, Options::default()) {
            Err(CompileError::Pattern(text)) => assert!(
                text.starts_with(&format!("PCRE2: error compiling pattern at offset {offset}: ")),
                "{pattern}: {text}"
            ),
            other => panic!("{pattern}: {other:?}"),
        }
    }
    assert!(Regex::new(&"a".repeat(MAX_PATTERN_BYTES + 1), Options::default()).is_err());
}

#[test]
fn the_longest_pattern_has_no_room_for_a_callout_and_is_tried_in_windows() {
    let longest = format!("{}b", "a".repeat(MAX_PATTERN_BYTES - 1));
    let regex = regex(&longest);
    let mut captures = regex.captures();
    let text = format!("{}ä{longest}", "a".repeat(100_000));
    assert!(regex.captures_at(&text, 0, &mut captures).expect("no limit"));
    assert_eq!(captures.get(0), Some((100_002, 100_002 + longest.len())));
    assert!(matches!(regex.inner.fast.get(), Some(None)));
    let without = format!("{}bb", "a".repeat(MAX_PATTERN_BYTES - 2));
    assert!(!regex.is_match(&without).expect("no limit"));
    let _scope = enter(Arc::new(FiresAfter(AtomicU32::new(3))), Account::new(1 << 30));
    let text = format!("{}cb", "a".repeat(1 << 20));
    assert!(matches!(regex.is_match(&text), Err(MatchError::Operation(_))));
}

#[test]
fn the_memory_that_matches_share_shows_each_pattern_its_own_groups() {
    let pattern = |groups: usize| format!("{}(z)?x", "(.)".repeat(groups));
    let text = format!("{}x", "abcdefghij".repeat(20));
    for groups in [0, 12, 1, 200, 3, 0] {
        let regex = regex(&pattern(groups));
        let mut captures = regex.captures();
        assert!(regex.captures_at(&text, 0, &mut captures).expect("no limit"), "{groups}");
        assert_eq!(captures.len(), groups + 2);
        assert_eq!(captures.get(0), Some((200 - groups, 201)));
        for group in 1..=groups {
            let from = 200 - groups + group - 1;
            assert_eq!(captures.get(group), Some((from, from + 1)), "{group} of {groups}");
        }
        assert_eq!(captures.get(groups + 1), None, "took no part");
    }
}

#[test]
fn nested_and_repeated_patterns_of_any_depth_compile_or_are_refused() {
    for depth in [10, 249, 251, 1_000, 10_000] {
        for (open, close) in
            [("(", ")"), ("(?:", ")?"), ("(?=", ")"), ("[^a", "]"), ("(?>a|", ")*")]
        {
            let pattern = format!("{}a{}", open.repeat(depth), close.repeat(depth));
            if let Ok(regex) = Regex::new(&pattern, Options::default()) {
                let _answered = regex.is_match("aaaa");
            }
        }
    }
}

#[test]
fn groups_are_told_by_bytes_and_a_group_that_took_no_part_is_none() {
    let regex = regex("(ä)|(b)(c)?");
    let mut captures = regex.captures();
    assert!(regex.captures_at("xäb", 0, &mut captures).expect("no limit"));
    assert_eq!(
        [0, 1, 2, 3].map(|group| captures.get(group)),
        [Some((1, 3)), Some((1, 3)), None, None]
    );
    assert!(regex.captures_at("xäb", 3, &mut captures).expect("no limit"));
    assert_eq!(
        [0, 1, 2, 3].map(|group| captures.get(group)),
        [Some((3, 4)), None, Some((3, 4)), None]
    );
    assert!(!regex.captures_at("xäb", 4, &mut captures).expect("at the end"));
    assert!(matches!(regex.captures_at("xäb", 2, &mut captures), Err(MatchError::Match(_))));
    assert!(Regex::new("", Options::default()).expect("empty").is_match("").expect("matches"));
}

#[test]
fn a_compiled_pattern_is_charged_while_it_lives() {
    let account = Account::new(1 << 20);
    let _scope = enter(Arc::new(FiresAfter(AtomicU32::new(u32::MAX))), Arc::clone(&account));
    let large = regex(&"(a|b|[^c]){1,40}".repeat(8));
    assert!(account.total() > 4_000, "{}", account.total());
    drop(large);
    assert_eq!(account.total(), 0);
}
