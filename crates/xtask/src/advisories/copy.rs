//! Renews `advisories.toml` from a clone of the `RustSec` database, for the crates that are locked.
//!
//! The database holds an advisory a file, `crates/NAME/RUSTSEC-YYYY-NNNN.md`: TOML between fences,
//! then a heading and prose. Fields are taken and the heading, never prose; where an advisory has a
//! licence of its own, the heading is not taken either.

use super::{COPY, locked, strings};
use crate::run::{read, root};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use toml::value::Datetime;
use toml::{Table, Value};

/// Writes the file anew.
pub(crate) fn renew(database: &Path, day: &str) -> Result<()> {
    let day: Datetime = day.parse().context("the day, as 2026-11-27")?;
    if day.date.is_none() || day.time.is_some() {
        bail!("`{day}` is no day");
    }
    let looked_up: BTreeSet<String> = locked(&root())?.into_iter().map(|it| it.name).collect();
    let mut rows = BTreeMap::new();
    let mut newest = String::new();
    let folder = database.join("crates");
    let crates = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    for entry in crates {
        let entry = entry?;
        let ours = looked_up.contains(&*entry.file_name().to_string_lossy());
        for (id, path) in files(&entry.path())? {
            if ours {
                let row = row(&read(&path)?).with_context(|| path.display().to_string())?;
                rows.insert(id.clone(), row);
            }
            newest = newest.max(id);
        }
    }
    let text = whole(&day, &newest, &looked_up, &rows);
    super::Known::parse(&text).context("what the database holds cannot be read back")?;
    std::fs::write(root().join(COPY), text)?;
    println!("{COPY}: {} advisories, up to {newest}", rows.len());
    Ok(())
}

/// The advisories of a crate's folder with their ids; those that have none yet are left out.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_markdown = path.extension().is_some_and(|kind| kind == "md");
        if is_markdown && id.starts_with("RUSTSEC-") && !id.starts_with("RUSTSEC-0000") {
            found.push((id, path));
        }
    }
    Ok(found)
}

/// How the file begins.
const HEAD: &str = "\
# What the RustSec advisory database says of the crates that are locked, of whatever version: the
# step `dependencies` of `cargo xtask test` holds the lock files against it, without network.
#
# To renew it, and after a new dependency: `git clone https://github.com/rustsec/advisory-db`, then
# `cargo xtask advisories FOLDER DAY`, where DAY is the day of the clone.

source = \"https://github.com/rustsec/advisory-db\"
# Facts and headings; of advisories with a licence of their own, facts alone.
licence = \"CC0-1.0\"
";

/// The file: how it is renewed, what was looked up, and the rows.
fn whole(
    day: &Datetime,
    newest: &str,
    looked_up: &BTreeSet<String>,
    rows: &BTreeMap<String, String>,
) -> String {
    let mut text = format!(
        "{HEAD}taken = {day}\n\
         # The newest that the source held, of whatever crate: later ones are not here.\n\
         newest = \"{newest}\"\n\
         # What was looked up. A locked crate that is missing here fails the step.\n\
         crates = [\n"
    );
    let mut line = String::new();
    for name in looked_up {
        if line.len() + name.len() > 92 {
            text.push_str(line.trim_end());
            text.push('\n');
            line.clear();
        }
        if line.is_empty() {
            line.push_str("  ");
        }
        // Writing to a text cannot fail.
        let _written = write!(line, "\"{name}\", ");
    }
    text.push_str(line.trim_end());
    text.push_str("\n]\n");
    for row in rows.values() {
        text.push('\n');
        text.push_str(row);
    }
    text
}

/// An advisory as a row of the file.
fn row(advisory: &str) -> Result<String> {
    let front = advisory.strip_prefix("```toml\n").context("it does not begin with TOML")?;
    let (front, prose) = front.split_once("\n```").context("its TOML does not end")?;
    let front: Table = toml::from_str(front)?;
    let about = front.get("advisory").and_then(Value::as_table).context("no [advisory]")?;
    let text = |key: &str| about.get(key).and_then(Value::as_str);
    let needed = |key: &str| text(key).with_context(|| format!("no `{key}`"));
    let versions = front.get("versions").and_then(Value::as_table).context("no [versions]")?;
    let id = needed("id")?;
    let heading = prose.lines().find_map(|line| line.strip_prefix("# ")).context("no heading")?;
    let title = match text("license") {
        None | Some("CC0-1.0") => heading.trim().to_owned(),
        Some(_) => strings(about.get("categories").context("no `categories`")?)?.join(", "),
    };
    let url = text("url")
        .map_or_else(|| format!("https://rustsec.org/advisories/{id}.html"), ToOwned::to_owned);
    let mut row = "[[advisory]]\n".to_owned();
    let mut add = |key: &str, value: &Value| {
        // Writing to a text cannot fail.
        let _written = writeln!(row, "{key} = {value}");
    };
    add("id", &Value::from(id));
    add("package", &Value::from(needed("package")?));
    add("date", &Value::from(needed("date")?));
    add("title", &Value::from(title));
    add("url", &Value::from(url));
    for key in ["patched", "unaffected"] {
        let ranges = versions.get(key).map_or(Ok(Vec::new()), strings)?;
        add(key, &Value::from(ranges));
    }
    for key in ["withdrawn", "informational"] {
        if let Some(value) = text(key) {
            add(key, &Value::from(value));
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::row;

    #[test]
    fn an_advisory_becomes_a_row_of_its_fields() {
        let plain = "```toml\n[advisory]\nid = \"RUSTSEC-2030-0001\"\npackage = \"a\"\n\
                     date = \"2030-01-02\"\ncategories = [\"crypto-failure\"]\n\n[versions]\n\
                     patched = [\">= 1.2\"]\n```\n\n# It \"breaks\"\n\nProse.\n\n# Impact\n";
        let expected = "[[advisory]]\nid = \"RUSTSEC-2030-0001\"\npackage = \"a\"\n\
                        date = \"2030-01-02\"\ntitle = 'It \"breaks\"'\n\
                        url = \"https://rustsec.org/advisories/RUSTSEC-2030-0001.html\"\n\
                        patched = [\">= 1.2\"]\nunaffected = []\n";
        assert_eq!(row(plain).unwrap(), expected);
        let more = "date = \"2030-01-02\"\nurl = \"u\"\nwithdrawn = \"2030-01-03\"\n\
                    informational = \"unsound\"\nlicense = \"CC-BY-4.0\"\n";
        let own_licence = plain.replace("date = \"2030-01-02\"\n", more);
        let row = row(&own_licence).unwrap();
        for line in [
            "title = \"crypto-failure\"\nurl = \"u\"\n",
            "withdrawn = \"2030-01-03\"\ninformational = \"unsound\"\n",
        ] {
            assert!(row.contains(line), "{row}");
        }
    }

    #[test]
    fn what_has_another_form_is_refused() {
        for (text, why) in [
            ("", "does not begin"),
            ("```toml\n[advisory]\n", "does not end"),
            ("```toml\na = 1\n```\n# A\n", "[advisory]"),
            ("```toml\n[advisory]\nid = 'R'\n```\n# A\n", "[versions]"),
            ("```toml\n[advisory]\nid = 'R'\n[versions]\n```\nA\n", "heading"),
            ("```toml\n[advisory]\nid = 'R'\n[versions]\n```\n# A\n", "`package`"),
        ] {
            let error = row(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
