//! A phase: clients that repeat a step.

use crate::meter::Meter;
use anyhow::Result;
use mongodb::bson::Document;
use mongodb::options::ClientOptions;
use mongodb::{Client as Driver, ClientSession, Database};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

/// What a step is: `true` means there is more to do.
pub(crate) type Work<'a> = Pin<Box<dyn Future<Output = Result<bool>> + Send + 'a>>;

/// One client: it works by itself, on a connection of the pool.
pub(crate) trait Client: Send {
    /// The next thing to do; it is carried out by waiting for it.
    fn step(&mut self) -> Work<'_>;
}

/// Where a client works.
#[derive(Clone)]
pub(crate) struct Room {
    pub(crate) database: Database,
    pub(crate) meter: Arc<Meter>,
    pub(crate) seed: u64,
    /// How often the phase has been run before.
    pub(crate) repeat: u64,
    /// How the server is reached, for a client with a pool of its own.
    pub(crate) settings: Arc<ClientOptions>,
    pub(crate) kept: Arc<Kept>,
}

/// What a phase leaves open on a server for the phases behind it.
#[derive(Default)]
pub(crate) struct Kept {
    /// Each in a transaction, which holds a snapshot; the oldest first.
    pub(crate) sessions: Mutex<VecDeque<ClientSession>>,
    /// With as many connections as were asked for.
    pub(crate) pool: Mutex<Option<Driver>>,
}

impl Room {
    /// Chance for one purpose, the same in every run from this seed.
    pub(crate) fn chance(&self, purpose: u64) -> ChaCha8Rng {
        chance(self.seed, purpose)
    }
}

/// A stream of chance of a seed; streams do not overlap.
pub(crate) fn chance(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

/// Makes the client of a number, from 0.
pub(crate) type MakeClient = Box<dyn Fn(&Room, usize) -> Box<dyn Client>>;

/// When a phase ends, on each server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// After so many seconds, or when all clients are done.
    Seconds(f64),
    /// When all clients are done, with so many units.
    Units(u64),
}

/// How the cost of one operation may grow along a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Allowed {
    /// With the logarithm at most: n operations beside n of what the curve counts cost n log n.
    Logarithm,
    /// In proportion: there are so many bytes or keys to be written.
    Proportion,
}

/// Where on which curve a phase stands.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) curve: &'static str,
    pub(crate) operation: &'static str,
    /// How many connections, collections, bytes there are.
    pub(crate) at: u64,
    pub(crate) allowed: Allowed,
    /// What the operation makes stays, and takes memory of the server.
    pub(crate) is_held: bool,
}

/// A part of an experiment.
pub(crate) struct Phase {
    /// What it is called in tables and pictures.
    pub(crate) name: String,
    /// What its rate counts: `documents`, `queries`.
    pub(crate) unit: &'static str,
    /// The class of operations whose units are its rate; `None`: all.
    pub(crate) counted: Option<&'static str>,
    /// Run on the database first, in this order, not measured.
    pub(crate) commands: Vec<Document>,
    /// Clients that have to be done for the phase to be done.
    pub(crate) clients: usize,
    /// Clients numbered behind those, which work only while those do.
    pub(crate) beside: usize,
    pub(crate) client: MakeClient,
    pub(crate) end: End,
    /// Whether it is what the experiment is about; loading mostly is not.
    pub(crate) shown: bool,
    pub(crate) point: Option<Point>,
    /// It begins when the server has done what earlier phases left it to do in the background.
    pub(crate) is_calm: bool,
    /// It writes nothing, so that no checkpoint belongs to it.
    pub(crate) only_reads: bool,
}

impl Phase {
    /// A measured phase; the rest is filled in by the experiment.
    pub(crate) fn new(
        name: impl Into<String>,
        unit: &'static str,
        clients: usize,
        end: End,
        client: MakeClient,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            counted: None,
            commands: Vec::new(),
            clients,
            beside: 0,
            client,
            end,
            shown: true,
            point: None,
            is_calm: false,
            only_reads: false,
        }
    }

    /// With commands before it.
    pub(crate) fn after(mut self, commands: Vec<Document>) -> Self {
        self.commands = commands;
        self
    }

    /// Only what others need: left out of the pictures.
    pub(crate) fn hidden(mut self) -> Self {
        self.shown = false;
        self
    }

    /// A point of a curve.
    pub(crate) fn at(mut self, point: Point) -> Self {
        self.point = Some(point);
        self
    }

    /// Not before the server rests.
    pub(crate) fn calm(mut self) -> Self {
        self.is_calm = true;
        self
    }

    /// Without the checkpoint at its end.
    pub(crate) fn reading(mut self) -> Self {
        self.only_reads = true;
        self
    }

    /// Its rate counts only these operations.
    pub(crate) fn counting(mut self, class: &'static str) -> Self {
        self.counted = Some(class);
        self
    }
}
