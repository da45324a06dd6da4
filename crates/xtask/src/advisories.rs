//! Known faults of what is locked: the lock files held against `advisories.toml`, a dated copy of
//! what the `RustSec` database says of our dependencies, so that no network is needed.
//!
//! Always true:
//! 1. A locked crate that nobody looked up in the database is a breach: a new dependency does not
//!    pass unseen because the copy is older.
//! 2. What lets an advisory pass (`ignore` in `deny.toml`) has a reason, and goes when it is not
//!    needed.
//! 3. A version counts as affected unless a range says otherwise. So does a pre-release that no
//!    range names: `>= 1.2` of `semver` holds none.

pub(crate) mod copy;

use crate::run::read;
use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::{Table, Value};

#[cfg(test)]
mod tests;

/// The lock files of the repository.
const LOCKS: [&str; 2] = ["Cargo.lock", "compare/Cargo.lock"];

/// The copy's file, below the root.
const COPY: &str = "advisories.toml";

/// What the lock files hold that must not be, and a line about the copy for who reads the output.
pub(crate) fn advisories(root: &Path, policy: &Table) -> Result<(Vec<String>, String)> {
    let known = Known::parse(&read(&root.join(COPY))?).context(COPY)?;
    let locked = locked(root)?;
    let line = format!("{} locked versions, advisories of {}", locked.len(), known.taken);
    Ok((known.breaches(&locked, &ignored(policy)?), line))
}

/// The packages of all lock files that are not ours.
fn locked(root: &Path) -> Result<Vec<Locked>> {
    let mut all = BTreeMap::new();
    for file in LOCKS {
        let found = packages(&read(&root.join(file))?).with_context(|| file.to_owned())?;
        for Locked { name, version, direct } in found {
            *all.entry((name, version)).or_insert(false) |= direct;
        }
    }
    let all = all.into_iter();
    Ok(all.map(|((name, version), direct)| Locked { name, version, direct }).collect())
}

/// A package of a lock file.
#[derive(Debug, PartialEq, Eq)]
struct Locked {
    name: String,
    version: Version,
    /// A crate of ours asks for it.
    direct: bool,
}

/// The packages of a lock file that are not ours: ours have no source.
fn packages(lock: &str) -> Result<Vec<Locked>> {
    let lock: Table = toml::from_str(lock)?;
    let packages = lock.get("package").and_then(Value::as_array).context("no packages")?;
    let (foreign, ours): (Vec<_>, Vec<_>) =
        packages.iter().partition(|package| package.get("source").is_some());
    // `name` where one version is locked, `name version` where several are.
    let asked = ours.iter().filter_map(|package| package.get("dependencies")?.as_array()).flatten();
    let asked: BTreeSet<&str> = asked.filter_map(Value::as_str).collect();
    let package = |package: &&Value| {
        let text = |key| package.get(key).and_then(Value::as_str).context("a package's name");
        let (name, version) = (text("name")?, text("version")?);
        let direct = asked.contains(name) || asked.contains(&*format!("{name} {version}"));
        Ok(Locked { name: name.to_owned(), version: Version::parse(version)?, direct })
    };
    foreign.iter().map(package).collect()
}

/// The advisories that `deny.toml` lets pass. Only entries with a reason count.
fn ignored(policy: &Table) -> Result<BTreeSet<String>> {
    let list = policy.get("advisories").and_then(|section| section.get("ignore")?.as_array());
    let id = |entry: &Value| {
        let text = |key| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let complete = text("id").filter(|_| text("reason").is_some());
        let complete = complete.with_context(|| format!("`ignore` without id or reason: {entry}"));
        complete.map(str::to_owned)
    };
    list.into_iter().flatten().map(id).collect()
}

/// What the copy says.
struct Known {
    taken: String,
    looked_up: BTreeSet<String>,
    advisories: Vec<Advisory>,
}

/// What is told of a crate.
struct Advisory {
    id: String,
    package: String,
    title: String,
    url: String,
    kind: Kind,
    withdrawn: bool,
    /// Versions that it does not concern: those that mended it, and those that never had it.
    unconcerned: Vec<VersionReq>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vulnerability,
    /// Safe code can do with it what only unsafe code may.
    Unsound,
    /// Nobody mends it any more.
    Unmaintained,
    /// Anything else that its users should know.
    Notice,
}

impl Known {
    fn parse(text: &str) -> Result<Self> {
        let table: Table = toml::from_str(text)?;
        let taken = table.get("taken").and_then(Value::as_datetime).context("`taken` is a day")?;
        let advisories = table.get("advisory").and_then(Value::as_array).context("no advisory")?;
        let advisories: Result<Vec<_>> = advisories.iter().map(Advisory::parse).collect();
        let advisories = advisories?;
        let looked_up = strings(table.get("crates").context("`crates` is a list")?)?;
        let looked_up: BTreeSet<String> = looked_up.into_iter().collect();
        if !advisories.is_sorted_by(|one, next| one.id < next.id) {
            bail!("the advisories are not sorted by id, each once");
        }
        if let Some(alien) = advisories.iter().find(|row| !looked_up.contains(&row.package)) {
            bail!("{} is about `{}`, which `crates` does not name", alien.id, alien.package);
        }
        Ok(Self { taken: taken.to_string(), looked_up, advisories })
    }

    /// What must not be locked, what was not looked up, and entries of `ignore` that nothing needs.
    fn breaches(&self, locked: &[Locked], ignored: &BTreeSet<String>) -> Vec<String> {
        let mut breaches = Vec::new();
        let mut unneeded = ignored.clone();
        for package in locked {
            let Locked { name, version, .. } = package;
            if !self.looked_up.contains(name) {
                breaches.push(format!(
                    "{name} {version} was not looked up for advisories on {}: {COPY} says how",
                    self.taken
                ));
            }
            for advisory in self.advisories.iter().filter(|row| row.concerns(package)) {
                let Advisory { id, title, url, .. } = advisory;
                unneeded.remove(id);
                if !ignored.contains(id) {
                    breaches.push(format!("{name} {version} has {id}: {title} ({url})"));
                }
            }
        }
        for id in unneeded {
            breaches
                .push(format!("deny.toml ignores {id}, which concerns no locked version any more"));
        }
        breaches
    }
}

impl Advisory {
    fn parse(row: &Value) -> Result<Self> {
        let text = |key: &str| row.get(key).and_then(Value::as_str);
        let id = text("id").context("an advisory without id")?;
        let needed = |key: &str| text(key).with_context(|| format!("{id} has no `{key}`"));
        let kind = match text("informational") {
            None => Kind::Vulnerability,
            Some("unsound") => Kind::Unsound,
            Some("unmaintained") => Kind::Unmaintained,
            Some("notice") => Kind::Notice,
            Some(other) => bail!("{id} is of the kind `{other}`, which is not known here"),
        };
        let mut unconcerned = Vec::new();
        for key in ["patched", "unaffected"] {
            let ranges = row.get(key).with_context(|| format!("{id} has no `{key}`"))?;
            for range in strings(ranges)? {
                let range = VersionReq::parse(&range);
                unconcerned.push(range.with_context(|| format!("{id}: a range of `{key}`"))?);
            }
        }
        Ok(Self {
            package: needed("package")?.to_owned(),
            title: needed("title")?.to_owned(),
            url: needed("url")?.to_owned(),
            withdrawn: row.get("withdrawn").is_some(),
            id: id.to_owned(),
            kind,
            unconcerned,
        })
    }

    /// Whether this version must not be locked because of it. Where a crate was given up that only
    /// others ask for, it is they who have to act.
    fn concerns(&self, locked: &Locked) -> bool {
        let counts = match self.kind {
            Kind::Vulnerability | Kind::Unsound => true,
            Kind::Unmaintained => locked.direct,
            Kind::Notice => false,
        };
        let unconcerned = || self.unconcerned.iter().any(|range| range.matches(&locked.version));
        counts && !self.withdrawn && self.package == locked.name && !unconcerned()
    }
}

/// A list of texts, and nothing else.
fn strings(list: &Value) -> Result<Vec<String>> {
    let list = list.as_array().context("a list of texts")?;
    list.iter().map(|text| Ok(text.as_str().context("a list of texts")?.to_owned())).collect()
}
