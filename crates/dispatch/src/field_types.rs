//! What the fields of commands take: one table for all commands whose fields have types.
//!
//! Always true:
//! 1. A field that is not in its command's row is refused as unknown before the command runs, and a
//!    value of another type than the row's with `TypeMismatch`; both in the order of the fields.
//! 2. Null stands for "not given" where a type is wanted, and only there: what is read whatever its
//!    type is (`hint`) or is one of several types (`dropTarget`) sees the null.

use crate::fields::{Field, type_name};
use Takes::{Any, AnyOrNull, Bool, BoolOrNumber, Integer, Object, Objects, Text, Uuid, Variant};
use bson::RawBsonRef;
use errors::Result;

/// What a field takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Anything, null too; the command has an error of its own for what it does not want.
    AnyOrNull,
    /// The same, but null is "not given".
    Any,
    /// A boolean, or a number that stands for one.
    BoolOrNumber,
    /// A boolean.
    Bool,
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
pub struct FieldTypes {
    /// The command's name.
    pub command: &'static str,
    /// Its fields, and what each takes.
    pub fields: &'static [(&'static str, Takes)],
}

/// A field that every command with a collection may carry to be sure which one it is.
const COLLECTION_UUID: (&str, Takes) = ("collectionUUID", Uuid);

/// The storage options, as TokuMX names them.
const STORAGE_OPTIONS: [(&str, Takes); 4] =
    [("compression", Any), ("fanout", Any), ("pageSize", Any), ("readPageSize", Any)];

/// Sorted by command.
pub static FIELD_TYPES: &[FieldTypes] = &[
    FieldTypes { command: "addPartition", fields: &[("newMax", Object)] },
    FieldTypes {
        command: "aggregate",
        fields: &[
            ("pipeline", AnyOrNull),
            ("cursor", Any),
            ("explain", BoolOrNumber),
            ("let", Object),
            ("hint", AnyOrNull),
            ("collation", Object),
            ("allowDiskUse", Bool),
            ("bypassDocumentValidation", BoolOrNumber),
            ("bypassEmptyTsReplacement", BoolOrNumber),
            COLLECTION_UUID,
        ],
    },
    FieldTypes {
        command: "beginLoad",
        fields: &[("ns", AnyOrNull), ("indexes", AnyOrNull), ("options", Object)],
    },
    FieldTypes {
        command: "cloneCollectionAsCapped",
        fields: &[("toCollection", AnyOrNull), ("size", AnyOrNull), ("temp", Any)],
    },
    FieldTypes {
        command: "collMod",
        fields: &[
            ("index", Object),
            ("validator", Object),
            ("validationLevel", Text),
            ("validationAction", Text),
            ("viewOn", Text),
            ("pipeline", Objects),
            ("changeStreamPreAndPostImages", Object),
            ("encryptedFields", Any),
            ("expireAfterSeconds", Any),
            ("timeseries", Object),
            ("cappedSize", Integer),
            ("cappedMax", Integer),
            ("dryRun", BoolOrNumber),
            COLLECTION_UUID,
            STORAGE_OPTIONS[0],
            STORAGE_OPTIONS[1],
            STORAGE_OPTIONS[2],
            STORAGE_OPTIONS[3],
        ],
    },
    FieldTypes { command: "convertToCapped", fields: &[("size", AnyOrNull)] },
    FieldTypes {
        command: "count",
        fields: &[
            ("query", Object),
            ("skip", Integer),
            ("limit", Integer),
            ("hint", Any),
            ("collation", Object),
            ("fields", Object),
            COLLECTION_UUID,
        ],
    },
    FieldTypes {
        command: "create",
        fields: &[
            ("autoIndexId", BoolOrNumber),
            ("capped", BoolOrNumber),
            ("changeStreamPreAndPostImages", Object),
            ("clusteredIndex", AnyOrNull),
            ("collation", Object),
            ("encryptedFields", Object),
            ("expireAfterSeconds", Integer),
            ("idIndex", Object),
            ("indexOptionDefaults", Object),
            ("max", Integer),
            ("partitionEvery", Object),
            ("partitioned", Any),
            ("pipeline", Objects),
            ("primaryKey", Any),
            ("size", Integer),
            ("storageEngine", Object),
            ("temp", BoolOrNumber),
            ("timeseries", Object),
            ("validationAction", Text),
            ("validationLevel", Text),
            ("validator", Object),
            ("viewOn", Text),
            STORAGE_OPTIONS[0],
            STORAGE_OPTIONS[1],
            STORAGE_OPTIONS[2],
            STORAGE_OPTIONS[3],
        ],
    },
    FieldTypes {
        command: "createIndexes",
        fields: &[
            ("indexes", Objects),
            ("commitQuorum", Any),
            ("ignoreUnknownIndexOptions", BoolOrNumber),
            COLLECTION_UUID,
        ],
    },
    FieldTypes {
        command: "delete",
        fields: &[
            ("deletes", Objects),
            ("ordered", BoolOrNumber),
            ("let", Object),
            ("bypassDocumentValidation", BoolOrNumber),
            ("stmtId", Any),
            ("stmtIds", Any),
            COLLECTION_UUID,
        ],
    },
    FieldTypes {
        command: "distinct",
        fields: &[
            ("key", Text),
            ("query", Object),
            ("hint", AnyOrNull),
            ("collation", Object),
            COLLECTION_UUID,
        ],
    },
    FieldTypes { command: "drop", fields: &[COLLECTION_UUID] },
    FieldTypes { command: "dropDatabase", fields: &[] },
    FieldTypes {
        command: "dropIndexes",
        fields: &[("index", Variant("string, object, array")), COLLECTION_UUID],
    },
    FieldTypes { command: "dropPartition", fields: &[("id", Integer), ("max", Object)] },
    FieldTypes { command: "explain", fields: &[("verbosity", Text)] },
    FieldTypes {
        command: "find",
        fields: &[
            ("filter", Object),
            ("projection", Object),
            ("sort", Object),
            ("hint", AnyOrNull),
            ("skip", Integer),
            ("limit", Integer),
            ("batchSize", Integer),
            ("singleBatch", BoolOrNumber),
            ("noCursorTimeout", BoolOrNumber),
            ("let", Object),
            ("collation", Object),
            ("min", Object),
            ("max", Object),
            ("returnKey", BoolOrNumber),
            ("showRecordId", BoolOrNumber),
            ("allowDiskUse", BoolOrNumber),
            ("tailable", BoolOrNumber),
            ("awaitData", BoolOrNumber),
            ("allowPartialResults", BoolOrNumber),
            ("oplogReplay", BoolOrNumber),
            ("readOnce", BoolOrNumber),
            ("requestResumeToken", BoolOrNumber),
            ("resumeAfter", Object),
            ("startAt", Object),
            COLLECTION_UUID,
        ],
    },
    FieldTypes {
        command: "findAndModify",
        fields: &[
            ("query", Object),
            ("sort", Object),
            ("fields", Object),
            ("remove", BoolOrNumber),
            ("new", BoolOrNumber),
            ("upsert", BoolOrNumber),
            ("update", Any),
            ("arrayFilters", Objects),
            ("hint", Any),
            ("collation", Object),
            ("let", Object),
            ("bypassDocumentValidation", BoolOrNumber),
            ("bypassEmptyTsReplacement", BoolOrNumber),
            ("stmtId", Any),
        ],
    },
    FieldTypes {
        command: "getMore",
        fields: &[
            ("collection", Text),
            ("batchSize", Integer),
            ("term", Any),
            ("lastKnownCommittedOpTime", Any),
        ],
    },
    FieldTypes {
        command: "insert",
        fields: &[
            ("documents", Objects),
            ("ordered", BoolOrNumber),
            ("bypassDocumentValidation", BoolOrNumber),
            ("bypassEmptyTsReplacement", BoolOrNumber),
            ("stmtId", Any),
            ("stmtIds", Any),
            COLLECTION_UUID,
        ],
    },
    FieldTypes { command: "killCursors", fields: &[("cursors", Any)] },
    FieldTypes {
        command: "listCollections",
        fields: &[
            ("filter", Object),
            ("nameOnly", Bool),
            ("authorizedCollections", Bool),
            ("cursor", Object),
        ],
    },
    FieldTypes {
        command: "listDatabases",
        fields: &[
            ("filter", Object),
            ("nameOnly", BoolOrNumber),
            ("authorizedDatabases", BoolOrNumber),
        ],
    },
    FieldTypes {
        command: "listIndexes",
        fields: &[
            ("cursor", Object),
            ("includeBuildUUIDs", BoolOrNumber),
            ("includeIndexBuildInfo", BoolOrNumber),
            COLLECTION_UUID,
        ],
    },
    FieldTypes {
        command: "renameCollection",
        fields: &[
            ("to", Text),
            ("dropTarget", Variant("bool, binData")),
            ("stayTemp", Bool),
            COLLECTION_UUID,
        ],
    },
    FieldTypes {
        command: "update",
        fields: &[
            ("updates", Objects),
            ("ordered", BoolOrNumber),
            ("let", Object),
            ("bypassDocumentValidation", BoolOrNumber),
            ("bypassEmptyTsReplacement", BoolOrNumber),
            ("stmtId", Any),
            ("stmtIds", Any),
            COLLECTION_UUID,
        ],
    },
];

/// The row of a command, where it has one. Looked for when the command's rules are compiled.
pub const fn of_command(command: &str) -> Option<&'static FieldTypes> {
    let mut at = 0;
    while at < FIELD_TYPES.len() {
        if is_same(FIELD_TYPES[at].command.as_bytes(), command.as_bytes()) {
            return Some(&FIELD_TYPES[at]);
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

impl FieldTypes {
    /// The field of a name, which nobody needs to look at as text.
    pub fn find(&self, name: &[u8]) -> Option<(&'static str, Takes)> {
        self.fields.iter().copied().find(|(known, _)| known.as_bytes() == name)
    }
}

impl Takes {
    /// Checks a field; says whether it was given at all.
    pub fn admit(self, field: &Field<'_>) -> Result<bool> {
        let null = matches!(field.value, RawBsonRef::Null | RawBsonRef::Undefined);
        if null && !matches!(self, AnyOrNull | Variant(_)) {
            return Ok(false);
        }
        match self {
            AnyOrNull | Any => {}
            BoolOrNumber => drop(field.bool()?),
            Bool => drop(field.strict_bool()?),
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
        assert!(FIELD_TYPES.windows(2).all(|pair| pair[0].command < pair[1].command));
    }
}
