//! Fail points: how a test asks a server to misbehave.
//!
//! What is always true:
//! 1. Only a server started with `enableTestCommands` can have one; without one, asking costs a
//!    single load.
//! 2. `configureFailPoint` itself never fails by one.

use crate::connection::Connection;
use bson::{Document, RawBsonRef, RawDocument};
use dispatch::labels::labelled;
use dispatch::rules::Rules;
use errors::{Code, Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a fail point is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `failCommand`.
    Command,
    /// `failGetMoreAfterCursorCheckout`.
    GetMore,
    /// `onPrimaryTransactionalWrite`: acts where a retryable write commits.
    BeforeCommit,
    /// `maxTimeAlwaysTimeOut`: whatever has a time limit is over it.
    TimeOut,
    /// `maxTimeNeverTimeOut`: no time limit counts.
    NoTimeOut,
    /// `stopReplProducer`: this member takes no entries of others.
    NoEntries,
}

/// How often a fail point acts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    /// Never.
    Off,
    /// Each time.
    Always,
    /// So many times more.
    Times(u64),
    /// Each time after so many.
    Skip(u64),
    /// Now and then, with this probability.
    Sometimes(f64),
}

/// The command that may meet a fail point.
pub struct Candidate<'a> {
    /// Its name and its rules.
    pub rules: &'a Rules,
    /// The connection that runs it.
    pub connection: &'a Connection,
    /// The database it was sent to.
    pub database: &'a str,
    /// The command itself.
    pub body: &'a RawDocument,
}

/// One fail point as it was configured.
#[expect(clippy::struct_excessive_bools, reason = "what a test asked for, independently")]
pub struct FailPoint {
    kind: Kind,
    /// How often it acts.
    pub mode: Mode,
    /// The names of the commands that meet it.
    pub commands: Vec<String>,
    /// Whatever the command is.
    pub all_commands: bool,
    /// Only on the connection of this name (`conn12`).
    pub connection: Option<String>,
    /// The number of the error.
    pub code: Option<i32>,
    /// The error's labels, where the test names them.
    pub labels: Option<Vec<String>>,
    /// Close the connection.
    pub hang_up: bool,
    /// Nobody said whether to close the connection.
    pub close_by_default: bool,
    /// Whether to wait first.
    pub blocks: bool,
    /// For how long.
    pub block: Option<Duration>,
    /// Only for the application of this name.
    pub application: Option<String>,
    /// Only where the command works on this collection.
    pub namespace: Option<String>,
    /// What to lay beside the result.
    pub write_concern_error: Option<Document>,
    /// Fields beside the error's code.
    pub extra: Option<Document>,
    /// Where its random numbers come from: each is made of the one before.
    pub random: u64,
    /// How often it acted.
    met: u64,
}

impl FailPoint {
    /// A fail point that is off.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            mode: Mode::Off,
            commands: Vec::new(),
            all_commands: false,
            connection: None,
            code: None,
            labels: None,
            hang_up: false,
            close_by_default: kind == Kind::BeforeCommit,
            blocks: false,
            block: None,
            application: None,
            namespace: None,
            write_concern_error: None,
            extra: None,
            random: 0,
            met: 0,
        }
    }

    fn concerns(&self, candidate: &Candidate<'_>) -> bool {
        let name = candidate.rules.name;
        let names = |list: &[String]| {
            list.iter()
                .any(|wanted| wanted == name || candidate.rules.aliases.contains(&wanted.as_str()))
        };
        match self.kind {
            Kind::Command => {
                (self.all_commands || names(&self.commands))
                    && self.connection.as_ref().is_none_or(|wanted| {
                        *wanted == format!("conn{}", candidate.connection.id())
                    })
                    && self
                        .application
                        .as_ref()
                        .is_none_or(|wanted| *wanted == application(candidate))
                    && self.namespace.as_ref().is_none_or(|wanted| *wanted == namespace(candidate))
            }
            Kind::GetMore => name == "getMore",
            Kind::TimeOut => has_time_limit(candidate),
            Kind::NoTimeOut | Kind::BeforeCommit | Kind::NoEntries => false,
        }
    }

    /// The next random number from 0 up to 1 (`SplitMix64`).
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Counts one meeting; says whether it acts.
    fn acts(&mut self) -> bool {
        let acts = match &mut self.mode {
            Mode::Off | Mode::Times(0) => false,
            Mode::Always | Mode::Skip(0) => true,
            Mode::Times(left) => {
                *left -= 1;
                true
            }
            Mode::Skip(left) => {
                *left -= 1;
                false
            }
            Mode::Sometimes(probability) => {
                let probability = *probability;
                self.random() < probability
            }
        };
        self.met += u64::from(acts);
        acts
    }
}

/// What a command that met a fail point has to do.
#[derive(Default)]
pub struct FailPointHit {
    /// Wait so long first.
    pub block: Option<Duration>,
    /// Fail so.
    pub error: Option<Error>,
    /// Close the connection.
    pub hang_up: bool,
    /// Run, and lay this beside the result.
    pub write_concern_error: Option<Document>,
    /// Labels beside it, where the fail point names them.
    pub labels: Option<Vec<String>>,
    /// It is met once the cursor is known: the server labels the error by it.
    pub knows_cursor: bool,
}

/// What `onPrimaryTransactionalWrite` does to a retryable write.
#[derive(Clone, Copy)]
pub struct BeforeCommit {
    /// Fail so instead of committing.
    pub code: Option<i32>,
    /// Close the connection, whatever becomes of the write.
    pub close: bool,
}

/// The fail points that are on.
#[derive(Default)]
pub struct FailPoints {
    any: AtomicBool,
    /// Guards the points.
    points: Mutex<Vec<FailPoint>>,
}

impl FailPoints {
    /// Puts a fail point in the place of the one of its kind; says how often that one acted.
    pub fn set(&self, point: FailPoint) -> u64 {
        let mut points = self.points.lock();
        let before = points.iter().position(|other| other.kind == point.kind);
        let met = before.map_or(0, |at| points.swap_remove(at).met);
        if point.mode != Mode::Off {
            points.push(point);
        }
        self.any.store(!points.is_empty(), Ordering::Relaxed);
        met
    }

    /// Whether time limits count.
    pub fn time_limits_count(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
            || self.points.lock().iter().all(|point| point.kind != Kind::NoTimeOut)
    }

    /// Fails where a fail point says that time is up: for limits kept since an earlier command.
    pub fn check_time(&self) -> Result<()> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut points = self.points.lock();
        let point = points.iter_mut().find(|point| point.kind == Kind::TimeOut);
        if point.is_some_and(FailPoint::acts) { Err(time_is_up()) } else { Ok(()) }
    }

    /// What becomes of the retryable write at hand when it commits.
    pub fn before_commit(&self) -> Option<BeforeCommit> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut points = self.points.lock();
        let point = points.iter_mut().find(|point| point.kind == Kind::BeforeCommit)?;
        let FailPoint { code, close_by_default, hang_up, .. } = *point;
        point.acts().then_some(BeforeCommit { code, close: hang_up || close_by_default })
    }

    /// What the command at hand has to do, where it meets a fail point.
    #[inline]
    pub fn meet(&self, candidate: &Candidate<'_>) -> Option<FailPointHit> {
        if self.any.load(Ordering::Relaxed) { self.meet_some(candidate) } else { None }
    }

    #[cold]
    fn meet_some(&self, candidate: &Candidate<'_>) -> Option<FailPointHit> {
        if candidate.rules.name == "configureFailPoint" {
            return None;
        }
        let mut points = self.points.lock();
        let point = points.iter_mut().find(|point| point.concerns(candidate))?;
        if !point.acts() {
            return None;
        }
        let mut hit = FailPointHit {
            block: point.block.filter(|_| point.blocks),
            hang_up: point.hang_up,
            write_concern_error: point.write_concern_error.clone(),
            labels: point.labels.clone(),
            knows_cursor: point.kind == Kind::GetMore,
            error: None,
        };
        hit.error = match (point.kind, point.code) {
            (Kind::TimeOut, _) => {
                Some(Error::new(Code::MAX_TIME_MS_EXPIRED, "operation exceeded time limit"))
            }
            (_, Some(code)) => {
                let error = Error::new(Code(code), "Failing command via 'failCommand' failpoint");
                let error = match &point.extra {
                    Some(extra) => error.with_extra(extra.clone()),
                    None => error,
                };
                Some(labelled(error, hit.labels.as_deref().unwrap_or_default()))
            }
            (_, None) if point.hang_up => {
                Some(Error::new(Code::HOST_UNREACHABLE, "closing the connection"))
            }
            _ => None,
        };
        Some(hit)
    }
}

fn time_is_up() -> Error {
    Error::new(Code::MAX_TIME_MS_EXPIRED, "operation exceeded time limit")
}

/// The client's application: from its first hello, also while that runs.
fn application(candidate: &Candidate<'_>) -> String {
    let of = |client: &RawDocument| {
        let application = client.get_document("application").ok()?;
        application.get_str("name").ok().map(ToOwned::to_owned)
    };
    let kept = candidate.connection.client_metadata().and_then(|client| of(client));
    let said = || candidate.body.get_document("client").ok().and_then(of);
    kept.or_else(said).unwrap_or_default()
}

fn namespace(candidate: &Candidate<'_>) -> String {
    let name = match candidate.body.iter().next() {
        Some(Ok((_, RawBsonRef::String(name)))) => name,
        _ => "$cmd",
    };
    format!("{}.{name}", candidate.database)
}

fn has_time_limit(candidate: &Candidate<'_>) -> bool {
    matches!(candidate.body.get("maxTimeMS"), Ok(Some(value)) if dispatch::fields::as_i64(value) != Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_count_down() {
        let acts = |mode: Mode, times: usize| {
            let mut point = FailPoint::new(Kind::Command);
            point.mode = mode;
            (0..times).map(|_| point.acts()).collect::<Vec<_>>()
        };
        assert_eq!(acts(Mode::Off, 2), [false, false]);
        assert_eq!(acts(Mode::Always, 2), [true, true]);
        assert_eq!(acts(Mode::Times(2), 3), [true, true, false]);
        assert_eq!(acts(Mode::Skip(1), 3), [false, true, true]);
        assert_eq!(acts(Mode::Sometimes(0.0), 2), [false, false]);
        assert_eq!(acts(Mode::Sometimes(1.0), 2), [true, true]);
        let often = acts(Mode::Sometimes(0.25), 4000).iter().filter(|acts| **acts).count();
        assert!((800..1200).contains(&often), "{often}");
    }
}
