//! `serverStatus().ft`: TokuMX's section, its fields the keys of `engineStatus`.
//!
//! Always true: the shape is TokuMX's. What this engine never does is a zero here and named
//! [`Place::Never`]: evictions write nothing, a checkpoint writes no leaf, pages are searched as
//! they are and need no parsing.

use super::engine_status::{Facts, write};
use Place::{In, Key, Never};
use bson::RawBsonRef;
use dispatch::fields::{Field, as_i64, inner};
use dispatch::writer::Writer;
use errors::{Error, Result};

/// `ft: {scale: n}`: bytes are shown in units of `n`.
pub(crate) fn scale(field: Option<&Field<'_>>) -> Result<u64> {
    let Some(RawBsonRef::Document(options)) = field.map(|field| field.value) else { return Ok(1) };
    let mut scale = 1;
    for option in inner(options, "serverStatus.ft") {
        let option = option?;
        if option.name != "scale" {
            return Err(option.unknown());
        }
        scale = as_i64(option.value).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    }
    if scale == 0 {
        return Err(Error::bad_value("scale has to be > 0"));
    }
    Ok(scale)
}

/// What stands under a name.
enum Place {
    /// The figure of a key of `engineStatus`.
    Key(&'static str),
    /// What never happens here.
    Never,
    In(&'static [(&'static str, Place)]),
}

const NO_WRITES: Place = In(&[("count", Never), ("bytes", Never), ("time", Never)]);
const NOTHING: Place = In(&[("count", Never), ("time", Never)]);

static FT: &[(&str, Place)] = &[
    ("fsync", In(&[("count", Key("FS_FSYNC_COUNT")), ("time", Key("FS_FSYNC_TIME"))])),
    (
        "log",
        In(&[
            ("count", Key("LOGGER_NUM_WRITES")),
            ("time", Key("LOGGER_TOKUTIME_WRITES")),
            ("bytes", Key("LOGGER_BYTES_WRITTEN")),
        ]),
    ),
    (
        "cachetable",
        In(&[
            (
                "size",
                In(&[
                    ("current", Key("CT_SIZE_CURRENT")),
                    ("writing", Key("CT_SIZE_WRITING")),
                    ("limit", Key("CT_SIZE_LIMIT")),
                ]),
            ),
            (
                "miss",
                In(&[
                    ("count", Key("CT_MISS")),
                    ("time", Key("CT_MISSTIME")),
                    (
                        "full",
                        In(&[
                            ("count", Key("FERN_MISS_FULL")),
                            ("time", Key("FERN_MISS_FULL_TIME")),
                        ]),
                    ),
                    (
                        "partial",
                        In(&[
                            ("count", Key("FERN_MISS_PARTIAL")),
                            ("time", Key("FERN_MISS_PARTIAL_TIME")),
                        ]),
                    ),
                ]),
            ),
            (
                "evictions",
                In(&[
                    (
                        "partial",
                        In(&[
                            (
                                "nonleaf",
                                In(&[(
                                    "clean",
                                    In(&[
                                        ("count", Key("FT_PARTIAL_EVICTIONS_NONLEAF")),
                                        ("bytes", Key("FT_PARTIAL_EVICTIONS_NONLEAF_BYTES")),
                                    ]),
                                )]),
                            ),
                            (
                                "leaf",
                                In(&[(
                                    "clean",
                                    In(&[
                                        ("count", Key("FT_PARTIAL_EVICTIONS_LEAF")),
                                        ("bytes", Key("FT_PARTIAL_EVICTIONS_LEAF_BYTES")),
                                    ]),
                                )]),
                            ),
                        ]),
                    ),
                    (
                        "full",
                        In(&[
                            (
                                "nonleaf",
                                In(&[
                                    (
                                        "clean",
                                        In(&[
                                            ("count", Key("FT_FULL_EVICTIONS_NONLEAF")),
                                            ("bytes", Key("FT_FULL_EVICTIONS_NONLEAF_BYTES")),
                                        ]),
                                    ),
                                    ("dirty", NO_WRITES),
                                ]),
                            ),
                            (
                                "leaf",
                                In(&[
                                    (
                                        "clean",
                                        In(&[
                                            ("count", Key("FT_FULL_EVICTIONS_LEAF")),
                                            ("bytes", Key("FT_FULL_EVICTIONS_LEAF_BYTES")),
                                        ]),
                                    ),
                                    ("dirty", NO_WRITES),
                                ]),
                            ),
                        ]),
                    ),
                ]),
            ),
        ]),
    ),
    (
        "checkpoint",
        In(&[
            ("count", Key("CP_CHECKPOINT_COUNT")),
            ("time", Key("CP_TIME_CHECKPOINT_DURATION")),
            ("lastBegin", Key("CP_TIME_LAST_CHECKPOINT_BEGIN")),
            (
                "lastComplete",
                In(&[
                    ("begin", Key("CP_TIME_LAST_CHECKPOINT_BEGIN_COMPLETE")),
                    ("end", Key("CP_TIME_LAST_CHECKPOINT_END")),
                    ("time", Key("CP_TIME_CHECKPOINT_DURATION_LAST")),
                ]),
            ),
            ("begin", In(&[("time", Key("CP_BEGIN_TIME"))])),
            (
                "write",
                In(&[
                    (
                        "nonleaf",
                        In(&[
                            ("count", Key("FT_DISK_FLUSH_NONLEAF_FOR_CHECKPOINT")),
                            ("time", Key("FT_DISK_FLUSH_NONLEAF_TOKUTIME_FOR_CHECKPOINT")),
                            (
                                "bytes",
                                In(&[
                                    (
                                        "uncompressed",
                                        Key(
                                            "FT_DISK_FLUSH_NONLEAF_UNCOMPRESSED_BYTES_FOR_CHECKPOINT",
                                        ),
                                    ),
                                    (
                                        "compressed",
                                        Key("FT_DISK_FLUSH_NONLEAF_BYTES_FOR_CHECKPOINT"),
                                    ),
                                ]),
                            ),
                        ]),
                    ),
                    (
                        "leaf",
                        In(&[
                            ("count", Never),
                            ("time", Never),
                            ("bytes", In(&[("uncompressed", Never), ("compressed", Never)])),
                        ]),
                    ),
                ]),
            ),
        ]),
    ),
    (
        "serializeTime",
        In(&[
            (
                "nonleaf",
                In(&[
                    ("serialize", Never),
                    ("compress", Key("FT_NONLEAF_COMPRESS_TOKUTIME")),
                    ("decompress", Key("FT_NONLEAF_DECOMPRESS_TOKUTIME")),
                    ("deserialize", Never),
                ]),
            ),
            (
                "leaf",
                In(&[
                    ("serialize", Never),
                    ("compress", Key("FT_LEAF_COMPRESS_TOKUTIME")),
                    ("decompress", Key("FT_LEAF_DECOMPRESS_TOKUTIME")),
                    ("deserialize", Never),
                ]),
            ),
        ]),
    ),
    (
        "locktree",
        In(&[(
            "size",
            In(&[("current", Key("LTM_SIZE_CURRENT")), ("limit", Key("LTM_SIZE_LIMIT"))]),
        )]),
    ),
    (
        "compressionRatio",
        In(&[
            ("leaf", Key("FT_DISK_FLUSH_LEAF_COMPRESSION_RATIO")),
            ("nonleaf", Key("FT_DISK_FLUSH_NONLEAF_COMPRESSION_RATIO")),
            ("overall", Key("FT_DISK_FLUSH_OVERALL_COMPRESSION_RATIO")),
        ]),
    ),
];

static ALERTS: &[(&str, Place)] = &[
    ("filesystem status", Key("FS_ENOSPC_REDZONE_STATE")),
    ("locktreeRequestsPending", Key("LTM_LOCK_REQUESTS_PENDING")),
    ("checkpointFailures", Key("CP_CHECKPOINT_COUNT_FAIL")),
    (
        "longWaitEvents",
        In(&[
            ("logBufferWait", Key("LOGGER_WAIT_BUF_LONG")),
            (
                "fsync",
                In(&[("count", Key("FS_LONG_FSYNC_COUNT")), ("time", Key("FS_LONG_FSYNC_TIME"))]),
            ),
            (
                "cachePressure",
                In(&[
                    ("count", Key("CT_LONG_WAIT_PRESSURE_COUNT")),
                    ("time", Key("CT_LONG_WAIT_PRESSURE_TIME")),
                ]),
            ),
            (
                "checkpointBegin",
                In(&[("count", Key("CP_LONG_BEGIN_COUNT")), ("time", Key("CP_LONG_BEGIN_TIME"))]),
            ),
            (
                "locktreeWait",
                In(&[("count", Key("LTM_LONG_WAIT_COUNT")), ("time", Key("LTM_LONG_WAIT_TIME"))]),
            ),
            // An escalation happens within a request and makes nobody else wait.
            ("locktreeWaitEscalation", NOTHING),
        ]),
    ),
];

/// Writes the section's fields; bytes in units of `scale`.
pub(crate) fn section(facts: &Facts, writer: &mut Writer, scale: u64) {
    places(FT, facts, writer, scale);
    let alerts = writer.begin_document("alerts");
    writer.i32("panic code", i32::from(facts.panic.is_some()));
    writer.str("panic string", facts.panic.as_deref().unwrap_or_default());
    places(ALERTS, facts, writer, scale);
    writer.end(alerts);
}

fn places(all: &[(&str, Place)], facts: &Facts, writer: &mut Writer, scale: u64) {
    for (name, place) in all {
        match place {
            Key(key) => {
                if let Some(figure) = facts.figure(key) {
                    write(writer, name, figure, scale);
                }
            }
            Never => writer.long(name, 0),
            In(inside) => {
                let open = writer.begin_document(name);
                places(inside, facts, writer, scale);
                writer.end(open);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::engine_status::is_key;

    fn check(places: &[(&str, Place)]) {
        for (name, place) in places {
            match place {
                Key(key) => assert!(is_key(key), "{name}: {key}"),
                Never => {}
                In(inside) => check(inside),
            }
        }
    }

    #[test]
    fn every_field_is_a_key_of_the_engine() {
        check(FT);
        check(ALERTS);
    }
}
