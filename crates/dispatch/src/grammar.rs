//! What the fields of commands take: one table for all commands whose fields have types.
//!
//! Always true:
//! 1. A field that is not in its command's row is refused as unknown before the command runs, and a
//!    value of another type than the row's with `TypeMismatch`; both in the order of the fields.
//! 2. Null stands for "not given" where a type is wanted, and only there: what is read whatever its
//!    type is (`hint`) or is one of several types (`dropTarget`) sees the null.

use crate::fields::{Field, type_name};
use Takes::{Any, Bool, Flag, Integer, Object, Objects, Own, Text, Uuid, Variant};
use bson::RawBsonRef;
use errors::Result;

/// What a field takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Anything, null too; the command has an error of its own for what it does not want.
    Any,
    /// The same, but null is "not given".
    Own,
    /// A boolean, or a number that stands for one.
    Bool,
    /// A boolean.
    Flag,
    /// A number.
    Integer,
    /// A document.
    Object,
    /// An array of documents.
    Objects,
    /// A string.
    Text,
    /// A UUID.
    Uuid,
    /// One of several types, spelled as in the error; null is none of them.
    Variant(&'static str),
}

/// The fields of one command.
#[derive(Debug)]
pub struct Grammar {
    /// The command's name.
    pub command: &'static str,
    /// Its fields, and what each takes.
    pub fields: &'static [(&'static str, Takes)],
}

/// A field that every command with a collection may carry to be sure which one it is.
const COLLECTION_UUID: (&str, Takes) = ("collectionUUID", Uuid);

/// The shape of what is stored, as TokuMX names it.
const SHAPE: [(&str, Takes); 4] =
    [("compression", Own), ("fanout", Own), ("pageSize", Own), ("readPageSize", Own)];

/// Sorted by command.
pub static GRAMMARS: &[Grammar] = &[
    Grammar {
        command: "aggregate",
        fields: &[
            ("pipeline", Any),
            ("cursor", Own),
            ("explain", Bool),
            ("let", Object),
            ("hint", Any),
            ("collation", Object),
            ("allowDiskUse", Flag),
            ("bypassDocumentValidation", Bool),
            ("bypassEmptyTsReplacement", Bool),
            COLLECTION_UUID,
        ],
    },
    Grammar {
        command: "cloneCollectionAsCapped",
        fields: &[("toCollection", Any), ("size", Any), ("temp", Own)],
    },
    Grammar {
        command: "collMod",
        fields: &[
            ("index", Object),
            ("validator", Object),
            ("validationLevel", Text),
            ("validationAction", Text),
            ("viewOn", Text),
            ("pipeline", Objects),
            ("changeStreamPreAndPostImages", Object),
            ("expireAfterSeconds", Own),
            ("timeseries", Object),
            ("cappedSize", Integer),
            ("cappedMax", Integer),
            ("dryRun", Bool),
            COLLECTION_UUID,
            SHAPE[0],
            SHAPE[1],
            SHAPE[2],
            SHAPE[3],
        ],
    },
    Grammar { command: "convertToCapped", fields: &[("size", Any)] },
    Grammar {
        command: "count",
        fields: &[
            ("query", Object),
            ("skip", Integer),
            ("limit", Integer),
            ("hint", Own),
            ("collation", Object),
            ("fields", Object),
            COLLECTION_UUID,
        ],
    },
    Grammar {
        command: "create",
        fields: &[
            ("autoIndexId", Bool),
            ("capped", Bool),
            ("changeStreamPreAndPostImages", Object),
            ("clusteredIndex", Any),
            ("collation", Object),
            ("encryptedFields", Object),
            ("expireAfterSeconds", Integer),
            ("idIndex", Object),
            ("indexOptionDefaults", Object),
            ("max", Integer),
            ("partitioned", Own),
            ("pipeline", Objects),
            ("primaryKey", Own),
            ("size", Integer),
            ("storageEngine", Object),
            ("temp", Bool),
            ("timeseries", Object),
            ("validationAction", Text),
            ("validationLevel", Text),
            ("validator", Object),
            ("viewOn", Text),
            SHAPE[0],
            SHAPE[1],
            SHAPE[2],
            SHAPE[3],
        ],
    },
    Grammar {
        command: "createIndexes",
        fields: &[
            ("indexes", Objects),
            ("commitQuorum", Own),
            ("ignoreUnknownIndexOptions", Bool),
            COLLECTION_UUID,
        ],
    },
    Grammar {
        command: "delete",
        fields: &[
            ("deletes", Objects),
            ("ordered", Bool),
            ("let", Object),
            ("bypassDocumentValidation", Bool),
            ("stmtId", Own),
            ("stmtIds", Own),
            COLLECTION_UUID,
        ],
    },
    Grammar {
        command: "distinct",
        fields: &[
            ("key", Text),
            ("query", Object),
            ("hint", Any),
            ("collation", Object),
            COLLECTION_UUID,
        ],
    },
    Grammar { command: "drop", fields: &[COLLECTION_UUID] },
    Grammar { command: "dropDatabase", fields: &[] },
    Grammar {
        command: "dropIndexes",
        fields: &[("index", Variant("string, object, array")), COLLECTION_UUID],
    },
    Grammar { command: "explain", fields: &[("verbosity", Text)] },
    Grammar {
        command: "find",
        fields: &[
            ("filter", Object),
            ("projection", Object),
            ("sort", Object),
            ("hint", Any),
            ("skip", Integer),
            ("limit", Integer),
            ("batchSize", Integer),
            ("singleBatch", Bool),
            ("noCursorTimeout", Bool),
            ("let", Object),
            ("collation", Object),
            ("min", Object),
            ("max", Object),
            ("returnKey", Bool),
            ("showRecordId", Bool),
            ("allowDiskUse", Bool),
            ("tailable", Bool),
            ("awaitData", Bool),
            ("allowPartialResults", Bool),
            ("oplogReplay", Bool),
            ("readOnce", Bool),
            ("requestResumeToken", Bool),
            ("resumeAfter", Object),
            ("startAt", Object),
            COLLECTION_UUID,
        ],
    },
    Grammar {
        command: "findAndModify",
        fields: &[
            ("query", Object),
            ("sort", Object),
            ("fields", Object),
            ("remove", Bool),
            ("new", Bool),
            ("upsert", Bool),
            ("update", Own),
            ("arrayFilters", Objects),
            ("hint", Own),
            ("collation", Object),
            ("let", Object),
            ("bypassDocumentValidation", Bool),
            ("bypassEmptyTsReplacement", Bool),
            ("stmtId", Own),
        ],
    },
    Grammar {
        command: "getMore",
        fields: &[
            ("collection", Text),
            ("batchSize", Integer),
            ("term", Own),
            ("lastKnownCommittedOpTime", Own),
        ],
    },
    Grammar {
        command: "insert",
        fields: &[
            ("documents", Objects),
            ("ordered", Bool),
            ("bypassDocumentValidation", Bool),
            ("bypassEmptyTsReplacement", Bool),
            ("stmtId", Own),
            ("stmtIds", Own),
            COLLECTION_UUID,
        ],
    },
    Grammar { command: "killCursors", fields: &[("cursors", Own)] },
    Grammar {
        command: "listCollections",
        fields: &[
            ("filter", Object),
            ("nameOnly", Flag),
            ("authorizedCollections", Flag),
            ("cursor", Object),
        ],
    },
    Grammar {
        command: "listDatabases",
        fields: &[("filter", Object), ("nameOnly", Bool), ("authorizedDatabases", Bool)],
    },
    Grammar {
        command: "listIndexes",
        fields: &[
            ("cursor", Object),
            ("includeBuildUUIDs", Bool),
            ("includeIndexBuildInfo", Bool),
            COLLECTION_UUID,
        ],
    },
    Grammar {
        command: "renameCollection",
        fields: &[
            ("to", Text),
            ("dropTarget", Variant("bool, binData")),
            ("stayTemp", Flag),
            COLLECTION_UUID,
        ],
    },
    Grammar {
        command: "update",
        fields: &[
            ("updates", Objects),
            ("ordered", Bool),
            ("let", Object),
            ("bypassDocumentValidation", Bool),
            ("bypassEmptyTsReplacement", Bool),
            ("stmtId", Own),
            ("stmtIds", Own),
            COLLECTION_UUID,
        ],
    },
];

/// The row of a command, where it has one. Looked for when the command's rules are compiled.
pub const fn of(command: &str) -> Option<&'static Grammar> {
    let mut at = 0;
    while at < GRAMMARS.len() {
        if is_same(GRAMMARS[at].command.as_bytes(), command.as_bytes()) {
            return Some(&GRAMMARS[at]);
        }
        at += 1;
    }
    None
}

/// `==`, which may not yet stand in a constant.
const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let ([a, after_a @ ..], [b, after_b @ ..]) = (one, other) {
        if *a != *b {
            return false;
        }
        (one, other) = (after_a, after_b);
    }
    one.is_empty() && other.is_empty()
}

impl Grammar {
    /// Checks a field; says whether it was given at all.
    pub fn admit(&self, field: &Field<'_>) -> Result<bool> {
        let Some((_, takes)) = self.fields.iter().find(|(name, _)| *name == field.name) else {
            return Err(field.unknown());
        };
        let null = matches!(field.value, RawBsonRef::Null | RawBsonRef::Undefined);
        if null && !matches!(takes, Any | Variant(_)) {
            return Ok(false);
        }
        match takes {
            Any | Own => {}
            Bool => drop(field.bool()?),
            Flag => drop(field.strict_bool()?),
            Integer => drop(field.i64()?),
            Object => drop(field.document()?),
            // Whether its elements are documents is looked at where they are read.
            Objects => drop(field.array()?),
            Text => drop(field.str()?),
            Uuid => drop(field.uuid()?),
            Variant(types) => {
                if !types.split(", ").any(|one| one == type_name(field.value)) {
                    return Err(field.wrong_types(types));
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted() {
        assert!(GRAMMARS.windows(2).all(|pair| pair[0].command < pair[1].command));
    }
}
