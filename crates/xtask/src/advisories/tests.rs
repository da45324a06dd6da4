//! What counts as a breach, as tables; and that the copy in the repository finds what it should.

use super::*;
use crate::run::root;

/// A lock file with these packages: name, version, and whether it is ours; ours asks for `asked`.
fn lock(packages: &[(&str, &str)], asked: &[&str]) -> Vec<Locked> {
    let mut text =
        format!("[[package]]\nname = 'ours'\nversion = '0.1.0'\ndependencies = {asked:?}\n");
    for (name, version) in packages {
        let package =
            format!("[[package]]\nname = '{name}'\nversion = '{version}'\nsource = 'registry'\n");
        text.push_str(&package);
    }
    super::packages(&text).unwrap()
}

fn known(rows: &str) -> Result<Known> {
    Known::parse(&format!("taken = 2030-01-02\ncrates = ['a', 'b']\n{rows}"))
}

/// An advisory about `a`, mended in 1.2.3 and in 1.1.9, never in 0.x, with more lines.
fn row(more: &str) -> String {
    format!(
        "[[advisory]]\nid = 'RUSTSEC-2030-0001'\npackage = 'a'\ntitle = 'It breaks'\nurl = 'u'\n\
         patched = ['>= 1.2.3', '>= 1.1.9, < 1.2']\nunaffected = ['< 1.0.0']\n{more}\n"
    )
}

#[test]
fn versions_in_no_range_are_breaches() {
    let known = known(&row("")).unwrap();
    for (package, version, breach) in [
        ("a", "1.0.0", true),
        ("a", "1.1.8", true),
        ("a", "1.1.9", false),
        ("a", "1.2.0", true),
        ("a", "1.2.2", true),
        ("a", "1.2.3", false),
        ("a", "2.0.0", false),
        ("a", "2.0.0+build.7", false),
        ("a", "0.9.0", false),
        // A pre-release that no range names.
        ("a", "1.2.3-rc.1", true),
        ("a", "3.0.0-rc.1", true),
        ("b", "1.0.0", false),
    ] {
        let found = known.breaches(&lock(&[(package, version)], &[]), &BTreeSet::new());
        let expected = format!("{package} {version} has RUSTSEC-2030-0001: It breaks (u)");
        let expected = if breach { vec![expected] } else { Vec::new() };
        assert_eq!(found, expected, "{package} {version}");
    }
}

#[test]
fn informational_ones_count_by_their_kind() {
    for (more, asked, breach) in [
        ("", "", true),
        ("informational = 'unsound'", "", true),
        ("informational = 'unmaintained'", "", false),
        ("informational = 'unmaintained'", "a", true),
        ("informational = 'unmaintained'", "a 1.0.0", true),
        // It is another version that we ask for.
        ("informational = 'unmaintained'", "a 2.0.0", false),
        ("informational = 'notice'", "a", false),
        ("withdrawn = '2030-01-03'", "a", false),
    ] {
        let known = known(&row(more)).unwrap();
        let found = known.breaches(&lock(&[("a", "1.0.0")], &[asked]), &BTreeSet::new());
        assert_eq!(found.len(), usize::from(breach), "{more}, asked for `{asked}`: {found:?}");
    }
}

#[test]
fn what_is_ignored_passes_as_long_as_it_is_needed() {
    let known = known(&row("")).unwrap();
    let policy = |text: &str| ignored(&toml::from_str(text).unwrap());
    let ignore =
        policy("[advisories]\nignore = [{ id = 'RUSTSEC-2030-0001', reason = 'unreached' }]")
            .unwrap();
    assert_eq!(known.breaches(&lock(&[("a", "1.0.0")], &[]), &ignore), Vec::<String>::new());
    let unneeded =
        ["deny.toml ignores RUSTSEC-2030-0001, which concerns no locked version any more"];
    assert_eq!(known.breaches(&lock(&[("a", "1.2.3")], &[]), &ignore), unneeded);
    for without_reason in ["'RUSTSEC-2030-0001'", "{ id = 'R' }", "{ id = 'R', reason = '' }"] {
        let text = format!("[advisories]\nignore = [{without_reason}]");
        assert!(policy(&text).is_err(), "{text}");
    }
    assert!(policy("").unwrap().is_empty());
}

#[test]
fn a_crate_that_was_not_looked_up_is_a_breach() {
    let found =
        known(&row("")).unwrap().breaches(&lock(&[("new", "1.0.0")], &[]), &BTreeSet::new());
    assert_eq!(
        found,
        ["new 1.0.0 was not looked up for advisories on 2030-01-02: advisories.toml says how"]
    );
}

#[test]
fn a_copy_that_is_not_in_order_is_refused() {
    let twice = row("").repeat(2);
    let range = row("").replace(">= 1.2.3", "newer than 1");
    let alien = row("").replace("package = 'a'", "package = 'c'");
    let no_patch = row("").replace("patched", "mended");
    for (rows, why) in [
        (&*twice, "not sorted"),
        (&*range, "a range of `patched`"),
        (&*alien, "which `crates` does not name"),
        (&*no_patch, "has no `patched`"),
        (&*row("informational = 'other'"), "of the kind `other`"),
        ("", "no advisory"),
    ] {
        let error = known(rows).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains(why), "{why}: {error}");
    }
}

/// Faulty versions, planted in a lock file: the copy in the repository tells of each.
#[test]
fn the_copy_finds_planted_versions() {
    let known = Known::parse(&read(&root().join(COPY)).unwrap()).unwrap();
    for (package, version, id) in [
        ("rustls", "0.23.44", "RUSTSEC-2026-0285"),
        ("rustls", "0.23.17", "RUSTSEC-2024-0399"),
        ("rand", "0.8.5", "RUSTSEC-2026-0097"),
        ("rand", "0.10.0", "RUSTSEC-2026-0097"),
        ("lz4_flex", "0.11.5", "RUSTSEC-2026-0041"),
        ("bytes", "1.11.0", "RUSTSEC-2026-0007"),
        ("slab", "0.4.10", "RUSTSEC-2025-0047"),
        ("protobuf", "2.28.0", "RUSTSEC-2024-0437"),
        ("anyhow", "1.0.102", "RUSTSEC-2026-0190"),
    ] {
        let found = known.breaches(&lock(&[(package, version)], &[]), &BTreeSet::new());
        let told = found.iter().any(|breach| breach.contains(&format!("has {id}:")));
        assert!(told, "{package} {version}: {found:?}");
    }
}
