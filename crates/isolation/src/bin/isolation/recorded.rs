//! Judges a history that other clients have made: a file of BSON documents, one behind the other, one for each
//! transaction.
//!
//! ```text
//! {client: int, begin: long, end: long, outcome: "committed" | "aborted" | "unknown", ops: [op, …]}
//! op    {append: key, value} │ {list: key, seen: [value, …]} │ {write: key, value} │ {register: key, seen: value or null}
//! ```
//!
//! Keys and values are whole numbers from 0 on, times microseconds of one clock. Where each transaction is one operation, or
//! one that reads a register and replaces it, `serializable` is linearizable: the order agrees with the clock.

use anyhow::{Context, Result, bail, ensure};
use isolation::{Level, Op, RecordedTxn, TxnOutcome, check};
use mongodb::bson::{Bson, Document};
use std::io::BufRead;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The history.
    file: PathBuf,
    /// What was promised.
    #[arg(long, value_enum)]
    level: Promise,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Promise {
    Snapshot,
    Serializable,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let level = match options.level {
        Promise::Snapshot => Level::Snapshot,
        Promise::Serializable => Level::Serializable,
    };
    let file = std::fs::read(&options.file).with_context(|| options.file.display().to_string())?;
    let history = read(&file[..])?;
    ensure!(!history.is_empty(), "a history without transactions says nothing");
    let report = check(&history);
    println!(
        "{:?}: {} transactions ({} operations), {} aborted, {} unknown",
        options.level, report.happened, report.operations, report.aborted, report.unknown
    );
    let forbidden: Vec<_> = report.forbidden(level).collect();
    for finding in forbidden.iter().take(3) {
        println!("{:?}\n{}", finding.anomaly, finding.text);
    }
    if !forbidden.is_empty() {
        bail!("{} forbidden anomalies", forbidden.len());
    }
    Ok(())
}

fn read(mut file: impl BufRead) -> Result<Vec<RecordedTxn>> {
    let mut history = Vec::new();
    while !file.fill_buf()?.is_empty() {
        let txn = Document::from_reader(&mut file)?;
        history.push(recorded(&txn).with_context(|| txn.to_string())?);
    }
    Ok(history)
}

fn recorded(txn: &Document) -> Result<RecordedTxn> {
    let outcome = match txn.get_str("outcome")? {
        "committed" => TxnOutcome::Committed,
        "aborted" => TxnOutcome::Aborted,
        "unknown" => TxnOutcome::Unknown,
        other => bail!("'{other}' is no outcome"),
    };
    let operation = |op: &Bson| operation(op.as_document().context("an operation is no document")?);
    Ok(RecordedTxn {
        client: u32::try_from(number(txn.get("client"))?)?,
        begin: number(txn.get("begin"))?,
        end: number(txn.get("end"))?,
        outcome,
        ops: txn.get_array("ops")?.iter().map(operation).collect::<Result<_>>()?,
    })
}

fn operation(op: &Document) -> Result<Op> {
    let (name, key) = op.iter().next().context("an operation without a name")?;
    let key = number(Some(key))?;
    let value = || number(op.get("value"));
    Ok(match name.as_str() {
        "append" => Op::Append { key, value: value()? },
        "list" => {
            let seen = op.get_array("seen")?.iter().map(|value| number(Some(value)));
            Op::ReadList { key, seen: seen.collect::<Result<_>>()? }
        }
        "write" => Op::Write { key, value: value()? },
        "register" => {
            let seen = op.get("seen").filter(|seen| **seen != Bson::Null);
            Op::ReadRegister { key, seen: seen.map(|seen| number(Some(seen))).transpose()? }
        }
        other => bail!("'{other}' is no operation"),
    })
}

fn number(value: Option<&Bson>) -> Result<u64> {
    let number = match value {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        other => bail!("{other:?} is no whole number"),
    };
    Ok(u64::try_from(number)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{doc, serialize_to_vec};

    #[test]
    fn a_file_is_read_to_its_end() {
        let one = doc! { "client": 1, "begin": 10_i64, "end": 20_i64, "outcome": "committed", "ops": [
            { "register": 3, "seen": null }, { "write": 3, "value": 7 }, { "register": 3, "seen": 7_i64 },
        ] };
        let other = doc! { "client": 2, "begin": 11, "end": 12, "outcome": "unknown", "ops": [
            { "append": 4, "value": 1 }, { "list": 4, "seen": [2, 1] },
        ] };
        let bytes: Vec<u8> =
            [&one, &other].iter().flat_map(|txn| serialize_to_vec(txn).unwrap()).collect();
        let read_back = read(&bytes[..]).unwrap();
        assert_eq!(read_back.len(), 2);
        assert_eq!((read_back[0].client, read_back[0].begin, read_back[0].end), (1, 10, 20));
        let ops = [
            Op::ReadRegister { key: 3, seen: None },
            Op::Write { key: 3, value: 7 },
            Op::ReadRegister { key: 3, seen: Some(7) },
        ];
        assert_eq!(read_back[0].ops, ops);
        assert_eq!(read_back[1].outcome, TxnOutcome::Unknown);
        assert_eq!(read_back[1].ops[1], Op::ReadList { key: 4, seen: vec![2, 1] });
        assert!(read(&bytes[..bytes.len() - 1]).is_err(), "a torn file is no history");
        for wrong in [
            doc! { "client": 1, "begin": 1, "end": 2, "outcome": "perhaps", "ops": [] },
            doc! { "client": 1, "begin": -1, "end": 2, "outcome": "unknown", "ops": [] },
            doc! { "client": 1, "begin": 1, "end": 2, "outcome": "unknown", "ops": [{ "delete": 1 }] },
        ] {
            assert!(read(&serialize_to_vec(&wrong).unwrap()[..]).is_err(), "{wrong}");
        }
    }
}
