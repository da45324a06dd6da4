//! How much is logged: `logLevel`, `quiet` and `logComponentVerbosity`.
//!
//! A component has a level of its own or its parent's; -1 stands for the parent's. Always true: the
//! components are those of [`COMPONENTS`], and a level is from -1 to 5.

use bson::{Document, RawBsonRef, RawDocument};
use dispatch::fields::{as_i64, type_name};
use errors::{Error, Result};
use std::collections::BTreeMap;

/// MongoDB's components, those inside of another behind a dot.
const COMPONENTS: &[&str] = &[
    "accessControl",
    "assert",
    "command",
    "control",
    "executor",
    "ftdc",
    "geo",
    "index",
    "network",
    "network.asio",
    "network.bridge",
    "network.connectionPool",
    "query",
    "queryStats",
    "replication",
    "replication.election",
    "replication.heartbeats",
    "replication.initialSync",
    "replication.rollback",
    "sharding",
    "storage",
    "storage.journal",
    "storage.recovery",
    "test",
    "tracking",
    "transaction",
    "write",
];

/// The component behind the `c` of a line of the log.
const OF_LINES: &[(&str, &str)] = &[
    ("ACCESS", "accessControl"),
    ("COMMAND", "command"),
    ("CONTROL", "control"),
    ("FTDC", "ftdc"),
    ("GEO", "geo"),
    ("INDEX", "index"),
    ("JOURNAL", "storage.journal"),
    ("NETWORK", "network"),
    ("QUERY", "query"),
    ("RECOVERY", "storage.recovery"),
    ("REPL", "replication"),
    ("SHARDING", "sharding"),
    ("STORAGE", "storage"),
    ("TXN", "transaction"),
    ("WRITE", "write"),
];

/// How much is logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// From 0, informational, to 5, everything.
    pub level: u8,
    /// Connections and their ends are not logged.
    pub quiet: bool,
    /// Values of clients' documents are left out (`redactClientLogData`).
    pub redacts: bool,
    /// Levels of components; one that is not here has its parent's.
    components: BTreeMap<&'static str, i8>,
    /// Whether `level` was among the levels that were read.
    names_level: bool,
}

impl LogSettings {
    /// One level for everything.
    pub fn at(level: u8) -> Self {
        Self { level, ..Self::default() }
    }

    /// The level that holds for lines of a component, by the `c` that they carry.
    pub fn level_of(&self, component: &str) -> u8 {
        let named = OF_LINES.iter().find(|(line, _)| *line == component).map(|(_, name)| *name);
        let mut name = named.unwrap_or_default();
        while !name.is_empty() {
            if let Some(level) = self.components.get(name) {
                return u8::try_from(*level).unwrap_or(0);
            }
            name = name.rsplit_once('.').map_or("", |(parent, _)| parent);
        }
        self.level
    }

    /// Reads `{verbosity: 0, command: 2, network: {verbosity: 1, asio: {verbosity: -1}}}`.
    pub fn parse(levels: &RawDocument) -> Result<Self> {
        let mut settings = Self::default();
        settings.parse_within("", levels)?;
        Ok(settings)
    }

    fn parse_within(&mut self, parent: &str, levels: &RawDocument) -> Result<()> {
        for element in levels {
            let (name, value) = element?;
            let name = name.as_str();
            if name == "verbosity" {
                self.take(parent, level(value)?);
                continue;
            }
            let full = if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
            let Some(component) = COMPONENTS.iter().find(|known| **known == full) else {
                return Err(Error::bad_value(format!("Invalid component name {full}")));
            };
            match value {
                RawBsonRef::Document(inner) => self.parse_within(component, inner)?,
                value => self.take(component, level(value)?),
            }
        }
        Ok(())
    }

    fn take(&mut self, component: &str, level: i8) {
        if let Some(known) = COMPONENTS.iter().find(|known| **known == component) {
            self.components.insert(known, level);
        } else {
            self.level = u8::try_from(level).unwrap_or(0);
            self.names_level = true;
        }
    }

    /// Takes over the levels that another names, and no others.
    pub fn take_levels(&mut self, other: &Self) {
        if other.names_level {
            self.level = other.level;
        }
        for (component, level) in &other.components {
            if *level < 0 {
                self.components.remove(component);
            } else {
                self.components.insert(component, *level);
            }
        }
    }

    /// All levels as `getParameter` shows them.
    pub fn shown(&self) -> Document {
        let mut all = Document::new();
        all.insert("verbosity", i32::from(self.level));
        for component in COMPONENTS {
            let mut at = &mut all;
            for part in component.split('.') {
                if at.get_document(part).is_err() {
                    at.insert(part, Document::new());
                }
                match at.get_document_mut(part) {
                    Ok(inner) => at = inner,
                    Err(_) => return Document::new(),
                }
            }
            at.insert(
                "verbosity",
                i32::from(self.components.get(component).copied().unwrap_or(-1)),
            );
        }
        all
    }
}

fn level(value: RawBsonRef<'_>) -> Result<i8> {
    let number = match value {
        RawBsonRef::Double(number) if number.is_nan() => None,
        value => as_i64(value),
    };
    number.filter(|number| (-1..=5).contains(number)).map(|number| number as i8).ok_or_else(|| {
        let shown = number.map_or_else(|| type_name(value).to_owned(), |number| number.to_string());
        Error::bad_value(format!("Invalid verbosity {shown}: it is a number from -1 to 5"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn components_have_their_parents_level_until_they_have_their_own() {
        let mut settings = LogSettings { level: 1, ..LogSettings::default() };
        assert_eq!((settings.level_of("NETWORK"), settings.level_of("-")), (1, 1));
        let read =
            rawdoc! { "network": 3, "storage": { "verbosity": 2, "journal": { "verbosity": 4 } } };
        settings.take_levels(&LogSettings::parse(&read).unwrap());
        let levels = ["NETWORK", "STORAGE", "JOURNAL", "RECOVERY", "COMMAND"];
        assert_eq!(levels.map(|component| settings.level_of(component)), [3, 2, 4, 2, 1]);
        let shown = settings.shown();
        assert_eq!(shown.get_i32("verbosity").ok(), Some(1));
        let network = shown.get_document("network").unwrap();
        assert_eq!(network.get_i32("verbosity").ok(), Some(3));
        assert_eq!(network.get_document("asio").unwrap().get_i32("verbosity").ok(), Some(-1));
        let cleared = LogSettings::parse(&rawdoc! { "verbosity": 0, "network": -1 }).unwrap();
        settings.take_levels(&cleared);
        assert_eq!((settings.level_of("NETWORK"), settings.level_of("JOURNAL")), (0, 4));
    }

    #[test]
    fn wrong_levels_and_components_are_refused() {
        for wrong in [
            rawdoc! { "nothing": 1 },
            rawdoc! { "asio": 1 },
            rawdoc! { "command": "abc" },
            rawdoc! { "command": { "verbosity": f64::NAN } },
            rawdoc! { "command": { "verbosity": 1_i64 << 31 } },
            rawdoc! { "command": { "verbosity": -2 } },
            rawdoc! { "verbosity": 6 },
        ] {
            assert_eq!(LogSettings::parse(&wrong).unwrap_err().code(), errors::Code::BAD_VALUE);
        }
    }
}
