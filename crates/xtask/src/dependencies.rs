//! What the workspace depends on: licences, forbidden crates, duplicate versions, sources and known
//! faults as `deny.toml` says, no dependency that no source file names, and no driver in programs
//! that need none.
//!
//! Over `cargo metadata`, so that nothing needs to be installed: cargo-deny, whose file this reads,
//! takes longer to build than the whole server.

use crate::advisories::advisories;
use crate::run::{cargo, files, host, read, root};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Checks all of it and reports all breaches at once.
pub(crate) fn dependencies() -> Result<()> {
    let policy: toml::Table = toml::from_str(&read(&root().join("deny.toml"))?)?;
    let metadata = metadata()?;
    let mut breaches = linked(&policy, &metadata)?;
    breaches.extend(APART.iter().flat_map(|(from, what)| reached(&metadata, from, what)));
    breaches.extend(built(NOT_BUILT)?);
    breaches.extend(unused(&root())?);
    let (faults, line) = advisories(&root(), &policy)?;
    breaches.extend(faults);
    if breaches.is_empty() {
        let apart = APART.len();
        println!("dependencies: as deny.toml says, all used, {apart} programs apart; {line}");
        return Ok(());
    }
    for breach in &breaches {
        eprintln!("dependencies: {breach}");
    }
    bail!("{} breaches of deny.toml", breaches.len());
}

/// The packages that are built on this kind of machine.
fn metadata() -> Result<Value> {
    let host = host()?;
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &host];
    let output = cargo(&arguments).output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Crates that the lock file has, and `cargo metadata` with it, because a feature that is off names them: they are
/// built into nothing.
const NOT_BUILT: &[&str] = &["ring"];

/// Which of these crates something of the workspace is built with after all.
fn built(crates: &[&str]) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for name in crates {
        let output =
            cargo(&["tree", "--workspace", "--locked", "--edges", "all", "--invert", name])
                .output()?;
        // Who depends on it; of a crate that nothing is built with cargo has nothing to print.
        let tree = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        }
        if let Some(user) = tree.lines().nth(1) {
            breaches.push(format!(
                "{name} is built, for {}",
                user.trim_start_matches(['└', '├', '─', ' '])
            ));
        }
    }
    Ok(breaches)
}

/// Programs that do without these crates, however many crates lie between (ADR 33).
const APART: &[(&str, &[&str])] =
    &[("fern", &["mongodb", "rustls", "tokio", "plotters"]), ("server", &["mongodb", "plotters"])];

/// Which of these crates a crate of the workspace links, and through which. Features are the whole
/// workspace's, so an edge that only another program asks for may show, but none is missed.
fn reached(metadata: &Value, from: &str, what: &[&str]) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named: BTreeMap<String, String> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let linked = |edge: &Value| list(&edge["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
    let edges: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let linked = list(&node["deps"]).into_iter().filter(linked);
            (text(&node["id"]), linked.map(|edge| text(&edge["pkg"])).collect())
        })
        .collect();
    let members = list(&metadata["workspace_members"]);
    let Some(start) = members.iter().map(text).find(|id| named.get(id).is_some_and(|n| n == from))
    else {
        return vec![format!("there is no crate `{from}`")];
    };
    let mut ways = BTreeMap::from([(start.clone(), from.to_owned())]);
    let mut ahead = vec![start];
    while let Some(id) = ahead.pop() {
        let way = ways[&id].clone();
        for next in edges.get(&id).into_iter().flatten().filter(|next| named.contains_key(*next)) {
            if !ways.contains_key(next) {
                ways.insert(next.clone(), format!("{way} > {}", named[next]));
                ahead.push(next.clone());
            }
        }
    }
    let found = ways.iter().filter(|(id, _)| what.contains(&named[*id].as_str()));
    found.map(|(_, way)| format!("`{from}` must do without the last of: {way}")).collect()
}

/// One package of the graph.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
    source: String,
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let list = |value: &Value| value.as_array().cloned().context("cargo metadata changed its form");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = list(&metadata["resolve"]["nodes"])?;
    let built: BTreeSet<String> = nodes.iter().map(|node| text(&node["id"])).collect();
    let all = list(&metadata["packages"])?;
    let foreign = all.iter().filter(|package| package["source"].is_string());
    let mut packages: Vec<Package> = foreign
        .filter(|package| built.contains(&text(&package["id"])))
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]),
            source: text(&package["source"]),
        })
        .collect();
    packages.sort_unstable();
    Ok(packages)
}

fn linked(policy: &toml::Table, metadata: &Value) -> Result<Vec<String>> {
    let packages = packages(metadata)?;
    let allowed = strings(policy, "licenses", "allow");
    let registries = strings(policy, "sources", "allow-registry");
    let denied = crates(policy, "deny");
    let mut skipped = crates(policy, "skip");
    let mut breaches = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Package { name, version, licence, source } in &packages {
        versions.entry(name).or_default().push(version);
        if !is_allowed(licence, &allowed) {
            breaches.push(format!("{name} {version} has the licence `{licence}`"));
        }
        if !registries.iter().any(|registry| source.ends_with(registry)) {
            breaches.push(format!("{name} {version} comes from {source}"));
        }
        if let Some(why) = denied.get(name)
            && !is_wrapped(policy, metadata, name)
        {
            breaches.push(format!("{name} {version} is forbidden: {why}"));
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let unnamed: Vec<_> = versions
            .iter()
            .filter(|version| skipped.remove(&format!("{name}@{version}")).is_none())
            .collect();
        if unnamed.len() > 1 {
            breaches.push(format!("{name} is linked as {unnamed:?}: update, or name it in `skip`"));
        }
    }
    for entry in skipped.keys() {
        breaches.push(format!("deny.toml skips {entry}, which is no duplicate any more"));
    }
    Ok(breaches)
}

/// Whether nobody asks for a forbidden crate but those that its entry names as `wrappers`.
fn is_wrapped(policy: &toml::Table, metadata: &Value, name: &str) -> bool {
    let list = policy.get("bans").and_then(|bans| bans.get("deny")?.as_array());
    let mut entries = list.into_iter().flatten();
    let entry =
        entries.find(|entry| entry.get("crate").and_then(toml::Value::as_str) == Some(name));
    let wrappers = entry.and_then(|entry| entry.get("wrappers")?.as_array());
    let Some(wrappers) = wrappers else { return false };
    let name_of = |id: &Value| {
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let mut found = packages.filter(|package| package["id"] == *id);
        found.next().and_then(|package| package["name"].as_str()).unwrap_or_default().to_owned()
    };
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let asks = |node: &&Value| {
        let edges = node["deps"].as_array().into_iter().flatten();
        edges.map(|edge| name_of(&edge["pkg"])).any(|asked| asked == name)
    };
    nodes.filter(asks).all(|node| {
        let from = name_of(&node["id"]);
        wrappers.iter().any(|wrapper| wrapper.as_str() == Some(&from))
    })
}

fn strings(policy: &toml::Table, section: &str, key: &str) -> BTreeSet<String> {
    let list = policy.get(section).and_then(|section| section.get(key)?.as_array());
    list.into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

/// The crates of a list under `bans`, each with its reason; an entry without one is none.
fn crates(policy: &toml::Table, key: &str) -> BTreeMap<String, String> {
    let list = policy.get("bans").and_then(|section| section.get(key)?.as_array());
    let field = |entry: &toml::Value, key| Some(entry.get(key)?.as_str()?.to_owned());
    let entries = list.into_iter().flatten();
    entries.filter_map(|entry| Some((field(entry, "crate")?, field(entry, "reason")?))).collect()
}

/// Whether a licence expression (SPDX, or the older form with slashes) can be met by what is
/// allowed.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    either(&mut rest, allowed) == Some(true) && rest.is_empty()
}

fn either(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = both(rest, allowed)?;
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        met |= both(rest, allowed)?;
    }
    Some(met)
}

fn both(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = one(rest, allowed)?;
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        met &= one(rest, allowed)?;
    }
    Some(met)
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    if *first == "(" {
        let met = either(rest, allowed)?;
        let behind = rest.strip_prefix(&[")"])?;
        *rest = behind;
        return Some(met);
    }
    let mut licence = (*first).to_owned();
    if let Some(behind) = rest.strip_prefix(&["WITH"]) {
        let (exception, behind) = behind.split_first()?;
        licence = format!("{licence} WITH {exception}");
        *rest = behind;
    }
    Some(allowed.contains(&licence))
}

/// Dependencies that are there for their features alone.
const FEATURES_ONLY: &[(&str, &str, &str)] =
    &[("isolation", "tokio", "the driver's runtime with more than one thread")];
/// Libraries of another name than their package's.
const LIBRARIES: &[(&str, &str)] = &[("md-5", "md5")];

/// Dependencies of a crate that none of its source files names, and those of the workspace that no
/// crate has.
fn unused(root: &Path) -> Result<Vec<String>> {
    let workspace: toml::Table = toml::from_str(&read(&root.join("Cargo.toml"))?)?;
    let chosen = workspace.get("workspace").and_then(|table| table.get("dependencies")?.as_table());
    let mut chosen: BTreeMap<_, _> =
        chosen.context("workspace.dependencies")?.clone().into_iter().collect();
    chosen.retain(|_, dependency| dependency.get("path").is_none());
    let mut breaches = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let manifest: toml::Table = toml::from_str(&read(&folder.join("Cargo.toml"))?)?;
        let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
        let name = name.context("a package has a name")?;
        let sources =
            files(&folder, "rs")?.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?;
        for dependency in named(&manifest) {
            chosen.remove(&dependency);
            let features_only =
                FEATURES_ONLY.iter().any(|row| (row.0, row.1) == (name, &dependency));
            let library = LIBRARIES.iter().find(|(package, _)| *package == dependency);
            let library =
                library.map_or_else(|| dependency.replace('-', "_"), |(_, l)| (*l).into());
            let used = sources.iter().any(|source| names(source, &library));
            if used == features_only {
                breaches.push(if used {
                    format!("crate `{name}` uses `{dependency}` and not only its features")
                } else {
                    format!("crate `{name}` does not use `{dependency}`")
                });
            }
        }
    }
    for dependency in chosen.keys() {
        breaches.push(format!("no crate uses `{dependency}` of the workspace"));
    }
    Ok(breaches)
}

/// All dependencies of a manifest, whatever for.
fn named(manifest: &toml::Table) -> BTreeSet<String> {
    const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values);
    let tables = targets.filter_map(toml::Value::as_table).chain([manifest]);
    let sections = tables.flat_map(|table| SECTIONS.iter().filter_map(|name| table.get(*name)));
    sections.filter_map(toml::Value::as_table).flat_map(toml::Table::keys).cloned().collect()
}

/// Whether a source file names a library: `library::`, `use library;` or `library as`.
fn names(source: &str, library: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    source.match_indices(library).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        let behind = &source[at + library.len()..];
        let follows = ["::", ";", " as "].iter().any(|text| behind.starts_with(text));
        let begins = before.is_none_or(|c| !in_word(c)) || source[..at].ends_with(" ::");
        follows && begins
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_met_by_what_is_allowed() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
        let allowed = allowed.iter().map(|licence| (*licence).to_owned()).collect();
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND ISC", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND GPL-3.0 OR ISC", true),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("MIT AND (GPL-3.0 OR X)", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("", false),
            ("(MIT", false),
            ("MIT ISC", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), met, "{expression}");
        }
    }

    #[test]
    fn libraries_are_named_by_whole_words() {
        for (source, named) in [
            ("use os::Clock;", true),
            ("    os::lane()", true),
            ("use os;", true),
            ("use os as system;", true),
            ("std::os::unix", false),
            ("chaos::new()", false),
            ("let os = 1", false),
        ] {
            assert_eq!(names(source, "os"), named, "{source}");
        }
    }

    #[test]
    fn what_a_program_reaches_is_found_over_any_number_of_crates() {
        let package = |name: &str| serde_json::json!({ "id": name, "name": name });
        let node = |name: &str, deps: &[(&str, Option<&str>)]| {
            let edge = |(name, kind): &(&str, Option<&str>)| serde_json::json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
            serde_json::json!({ "id": name, "deps": deps.iter().map(edge).collect::<Vec<_>>() })
        };
        let packages = ["fern", "between", "tls", "tests"].map(package);
        let metadata = serde_json::json!({
            "packages": packages,
            "workspace_members": ["fern"],
            "resolve": { "nodes": [
                node("fern", &[("between", None), ("tests", Some("dev"))]),
                node("between", &[("tls", None)]),
                node("tests", &[]),
                node("tls", &[("between", None)]),
            ] },
        });
        let found = reached(&metadata, "fern", &["tls", "tests"]);
        assert_eq!(found, ["`fern` must do without the last of: fern > between > tls"]);
        assert_eq!(reached(&metadata, "gone", &[]).len(), 1);
    }

    #[test]
    fn a_graph_is_held_against_the_policy() {
        let policy = "
            [licenses]\nallow = ['MIT']\n[sources]\nallow-registry = ['index']\n[bans]
            deny = [{ crate = 'bad', reason = 'x' }, { crate = 'hidden', reason = 'x', wrappers = ['two'] }]
            skip = [{ crate = 'two@1', reason = 'x' }, { crate = 'gone@1', reason = 'x' }]";
        let policy: toml::Table = toml::from_str(policy).unwrap();
        let package = |name: &str, version: &str, licence: &str, source: &str| {
            let id = format!("{name}@{version}");
            serde_json::json!({
                "id": id, "name": name, "version": version, "license": licence, "source": source,
            })
        };
        let all = [
            package("two", "1", "MIT", "index"),
            package("two", "2", "MIT", "index"),
            package("more", "1", "MIT", "index"),
            package("more", "2", "MIT", "index"),
            package("bad", "1", "MIT", "index"),
            package("hidden", "1", "MIT", "index"),
            package("closed", "1", "none", "index"),
            package("elsewhere", "1", "MIT", "git"),
        ];
        let metadata_where = |asks: &str| {
            let node = |package: &Value| {
                let deps =
                    (package["id"] == asks).then(|| serde_json::json!({ "pkg": "hidden@1" }));
                serde_json::json!({ "id": package["id"], "deps": deps.as_slice() })
            };
            let nodes: Vec<_> = all.iter().map(node).collect();
            serde_json::json!({ "packages": all, "resolve": { "nodes": nodes } })
        };
        let other = linked(&policy, &metadata_where("more@1")).unwrap();
        assert!(other.iter().any(|breach| breach.contains("hidden 1 is forbidden")), "{other:?}");
        let breaches = linked(&policy, &metadata_where("two@1")).unwrap();
        let of = |what: &str| breaches.iter().filter(|breach| breach.contains(what)).count();
        assert_eq!(breaches.len(), 5, "{breaches:?}");
        let found = ["bad 1 is forbidden", "`none`", "from git", "more is linked", "gone@1"];
        assert_eq!(found.map(of), [1; 5], "{breaches:?}");
    }
}
