//! Names of collections, and which of them a migration takes.
//!
//! Always true: what belongs to the server itself (`admin`, `config`, `local`, `system.…`) is never taken.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A collection or view by its database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) database: String,
    pub(crate) collection: String,
}

impl Name {
    pub(crate) fn new(database: impl Into<String>, collection: impl Into<String>) -> Self {
        Self { database: database.into(), collection: collection.into() }
    }

    /// From `database.collection`; the collection may hold dots.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (database, collection) = text.split_once('.')?;
        let is_name = !database.is_empty() && !collection.is_empty();
        is_name.then(|| Self::new(database, collection))
    }

    /// Whether the server keeps its own data there. `system.js` holds functions of the user.
    pub(crate) fn is_internal(&self) -> bool {
        is_internal_database(&self.database)
            || (self.collection.starts_with("system.") && self.collection != "system.js")
            || self.collection.contains('$')
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

pub(crate) fn is_internal_database(database: &str) -> bool {
    matches!(database, "admin" | "config" | "local")
}

/// Which collections are taken: one of the patterns to include, where there are any, and none of those to exclude.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Filter {
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
}

impl Filter {
    /// Its patterns, without the order in which they were given.
    pub(crate) fn sorted(&self) -> [BTreeSet<&String>; 2] {
        [self.include.iter().collect(), self.exclude.iter().collect()]
    }

    /// A pattern to include that none of these is chosen by.
    pub(crate) fn fits_nothing<'a>(
        &self,
        names: impl Iterator<Item = &'a Name>,
    ) -> Option<&String> {
        let names: Vec<String> = names.map(ToString::to_string).collect();
        self.include.iter().find(|pattern| !names.iter().any(|name| matches(pattern, name)))
    }

    pub(crate) fn takes(&self, name: &Name) -> bool {
        let text = name.to_string();
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, &text));
        !name.is_internal()
            && (self.include.is_empty() || any(&self.include))
            && !any(&self.exclude)
    }
}

/// Whether a text is what a pattern says; `*` stands for any characters, and a pattern without a dot for a database.
fn matches(pattern: &str, text: &str) -> bool {
    if !pattern.contains('.') && !pattern.ends_with('*') {
        return matches(&format!("{pattern}.*"), text);
    }
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_databases_collections_and_parts_of_them() {
        for (include, exclude, name, expected) in [
            (&[][..], &[][..], "shop.orders", true),
            (&[], &[], "admin.things", false),
            (&[], &[], "shop.system.indexes", false),
            (&[], &[], "shop.system.js", true),
            (&["shop.*"], &[], "shop.orders", true),
            (&["shop"], &[], "shop.orders", true),
            (&["shop"], &[], "shops.orders", false),
            (&["shop.orders"], &[], "shop.orders2", false),
            (&["*.orders"], &[], "shop.orders", true),
            (&["shop.o*s"], &[], "shop.orders", true),
            (&["shop.o*s"], &[], "shop.order", false),
            (&["a*.b*c"], &[], "a.b.c", true),
            (&["s*p"], &[], "shop.orders", true),
            (&["shop.*"], &["shop.tmp*"], "shop.tmp.one", false),
            (&[], &["*.logs"], "shop.logs", false),
            (&[], &["other"], "shop.logs", true),
        ] {
            let all = |patterns: &[&str]| patterns.iter().map(ToString::to_string).collect();
            let filter = Filter { include: all(include), exclude: all(exclude) };
            let name = Name::parse(name).unwrap();
            assert_eq!(filter.takes(&name), expected, "{include:?} {exclude:?} {name}");
        }
    }

    #[test]
    fn a_name_is_split_at_its_first_dot() {
        assert_eq!(Name::parse("a.b.c"), Some(Name::new("a", "b.c")));
        assert_eq!(Name::parse("a."), None);
        assert_eq!(Name::parse("a"), None);
    }
}
