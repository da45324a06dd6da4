//! Names that were retired and must not come back into the code.
//!
//! `docs/GLOSSARY.md` lists them under "Retired names", a row each: what is retired, what stands
//! instead, and the crates it is retired in (`all`, or their names). What stands in backticks is an
//! identifier and is looked for in code, as a whole word; what stands in quotes is a phrase and is
//! looked for in comments and strings too, in any case of letters.
//!
//! Always true: a list without rows is a breach, so that the rule cannot be lost by an edit of the
//! document.

use anyhow::{Result, bail};

const HEADING: &str = "## Retired names";

/// A row of the list.
#[derive(Debug)]
struct Retired {
    name: Name,
    instead: String,
    /// Empty: all crates.
    crates: Vec<String>,
}

#[derive(Debug)]
enum Name {
    Identifier(String),
    Phrase(String),
}

/// The list, as the glossary has it.
#[derive(Debug)]
pub(crate) struct RetiredNames(Vec<Retired>);

impl RetiredNames {
    pub(crate) fn parse(glossary: &str) -> Result<Self> {
        let mut rows = Vec::new();
        let list = glossary.split_once(HEADING).map_or("", |(_, list)| list);
        let list = list.split("\n## ").next().unwrap_or_default();
        for line in list.lines().filter(|line| line.starts_with("| ") && line.contains(['`', '"']))
        {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [names, instead, crates] = cells[..] else {
                bail!("docs/GLOSSARY.md: not a row of three cells: {line}");
            };
            let crates: Vec<String> = match crates {
                "all" => Vec::new(),
                some => some.split(", ").map(str::to_owned).collect(),
            };
            let phrases =
                names.split('"').skip(1).step_by(2).map(|name| Name::Phrase(name.to_lowercase()));
            let identifiers =
                names.split('`').skip(1).step_by(2).map(|name| Name::Identifier(name.to_owned()));
            for name in identifiers.chain(phrases) {
                rows.push(Retired { name, instead: instead.to_owned(), crates: crates.clone() });
            }
        }
        if rows.is_empty() {
            bail!("docs/GLOSSARY.md has no list under \"{HEADING}\"");
        }
        Ok(Self(rows))
    }

    /// What is wrong with a source file of this crate.
    pub(crate) fn breaches(&self, shown: &str, member: &str, text: &str) -> Vec<String> {
        let here = |row: &&Retired| row.crates.is_empty() || row.crates.iter().any(|c| c == member);
        let rows: Vec<&Retired> = self.0.iter().filter(here).collect();
        let mut breaches = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let lower = line.to_lowercase();
            for row in &rows {
                let (name, found) = match &row.name {
                    Name::Identifier(name) => (name, has_word(code, name)),
                    Name::Phrase(name) => (name, has_word(&lower, name)),
                };
                if found {
                    let instead = &row.instead;
                    breaches.push(format!("{shown}:{}: `{name}` is retired: {instead}", at + 1));
                }
            }
        }
        breaches
    }
}

/// Whether `word` stands in `text` with no letter, digit or underscore beside it.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !behind.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Glossary\n\n| Ours | `Desk` |\n\n## Retired names\n\n\
        | Retired | Instead | In |\n|---|---|---|\n\
        | `Desk`, \"at its desk\" | `ClaimTable` | all |\n| `Left` | `UnitOutcome` | engine, sim |\n\
        \n## Else\n\n| `Fine` | a | all |\n";

    fn found(member: &str, text: &str) -> usize {
        RetiredNames::parse(GLOSSARY).unwrap().breaches("planted.rs", member, text).len()
    }

    #[test]
    fn planted_names_are_found_where_they_are_retired() {
        let rows = [
            ("ftree", "struct Desk {", 1),
            ("ftree", "let x = Desk::new(); // the Desk", 1),
            ("ftree", "/// Desk in a comment, not in code", 0),
            ("ftree", "/// Stands At its desk.", 1),
            ("ftree", "struct Desktop; struct MyDesk; fn desk_of() {}", 0),
            ("ftree", "enum Left {}", 0),
            ("engine", "enum Left {}", 1),
            ("sim", "Left::Done", 1),
            ("engine", "Fine", 0),
        ];
        for (member, text, count) in rows {
            assert_eq!(found(member, text), count, "{member}: {text}");
        }
    }

    #[test]
    fn list_that_is_missing_or_malformed_is_an_error() {
        assert!(RetiredNames::parse("# Glossary\n").is_err());
        assert!(RetiredNames::parse("## Retired names\n\n| `A` | b |\n").is_err());
    }

    #[test]
    fn list_of_the_repository_has_the_names_that_were_renamed_first() {
        let root = crate::run::root();
        let glossary = std::fs::read_to_string(root.join("docs/GLOSSARY.md")).unwrap();
        let names = RetiredNames::parse(&glossary).unwrap();
        let planted = "struct Desk; struct Door; const LANES: usize = 1; struct Keeper;";
        assert_eq!(names.breaches("planted.rs", "engine", planted).len(), 4);
    }
}
