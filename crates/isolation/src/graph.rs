//! Who comes before whom, and the cycles that must not be.
//!
//! Edges: `T → U` because U wrote the version behind one of T's (ww), read one of T's (wr), wrote
//! the version behind one T read (rw), or began after T had ended (time).

use crate::history::{RecordedTxn, TxnOutcome};
use crate::versions::{Object, Versions};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Ww(Object),
    Wr(Object),
    Rw(Object),
    Time,
}

impl Why {
    pub(crate) fn is_rw(self) -> bool {
        matches!(self, Self::Rw(_))
    }
}

/// A step of a cycle: from a transaction, why, to the next one.
pub(crate) type Step = (usize, Why, usize);

/// Which cycles are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cycles {
    /// Without any rw: impossible under snapshot isolation and stronger.
    WithoutRw,
    /// Without two rw one after the other: the same.
    WithoutAdjacentRw,
    /// All: what serializability excludes.
    All,
}

pub(crate) struct Graph {
    edges: Vec<Vec<(usize, Why)>>,
}

impl Graph {
    pub(crate) fn of(history: &[RecordedTxn], versions: &Versions) -> Self {
        let mut graph = Self { edges: vec![Vec::new(); history.len()] };
        graph.add_versions(versions);
        graph.add_time(history, versions);
        graph
    }

    fn add(&mut self, from: usize, why: Why, to: usize) {
        if from != to && !self.edges[from].contains(&(to, why)) {
            self.edges[from].push((to, why));
        }
    }

    fn add_versions(&mut self, versions: &Versions) {
        let writer = |object, value| {
            let writer = versions.writer.get(&(object, value)).copied();
            writer.filter(|writer| versions.happened[*writer])
        };
        for (object, next) in &versions.next {
            for (before, after) in next {
                let Some(before) = before.and_then(|value| writer(*object, value)) else {
                    continue;
                };
                for after in after.iter().filter_map(|value| writer(*object, *value)) {
                    self.add(before, Why::Ww(*object), after);
                }
            }
        }
        for (reader, touches) in versions.touches.iter().enumerate() {
            if !versions.happened[reader] {
                continue;
            }
            for (object, touch) in touches {
                let Some(read) = touch.read else { continue };
                if let Some(writer) = read.and_then(|value| writer(*object, value)) {
                    self.add(writer, Why::Wr(*object), reader);
                }
                let next = versions.next.get(object).and_then(|next| next.get(&read));
                for after in next.into_iter().flatten() {
                    if let Some(after) = writer(*object, *after) {
                        self.add(reader, Why::Rw(*object), after);
                    }
                }
            }
        }
    }

    /// Edges from each transaction to those that began after its end, but for what follows from
    /// others.
    fn add_time(&mut self, history: &[RecordedTxn], versions: &Versions) {
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (at, txn) in history.iter().enumerate().filter(|(at, _)| versions.happened[*at]) {
            // Of what begins and ends in one instant nothing is known: beginnings come first.
            events.push((txn.begin, false, at));
            if txn.outcome == TxnOutcome::Committed {
                events.push((txn.end, true, at));
            }
        }
        events.sort_unstable();
        let mut ended: Vec<usize> = Vec::new();
        for (_, is_end, at) in events {
            if is_end {
                ended.retain(|other| history[*other].end >= history[at].begin);
                ended.push(at);
            } else {
                for before in &ended {
                    self.add(*before, Why::Time, at);
                }
            }
        }
    }

    /// A short cycle of each knot of transactions.
    pub(crate) fn cycles(&self, kind: Cycles) -> Vec<Vec<Step>> {
        let knots = self.knots(kind);
        knots.iter().filter_map(|knot| self.shortest(kind, knot)).collect()
    }

    /// Places in the walked graph: a transaction, and whether an rw led there. Only where two rw
    /// must not meet does the second matter.
    fn steps(&self, kind: Cycles, place: usize) -> impl Iterator<Item = (usize, Why)> {
        let (at, after_rw) = (place / 2, place % 2 == 1);
        self.edges[at].iter().filter_map(move |(to, why)| match (kind, why.is_rw()) {
            (Cycles::WithoutRw, true) => None,
            (Cycles::WithoutAdjacentRw, true) if after_rw => None,
            (Cycles::WithoutAdjacentRw, true) => Some((to * 2 + 1, *why)),
            _ => Some((to * 2, *why)),
        })
    }

    fn knots(&self, kind: Cycles) -> Vec<Vec<usize>> {
        let mut graph: DiGraph<(), ()> = DiGraph::new();
        for _ in 0..self.edges.len() * 2 {
            graph.add_node(());
        }
        for place in 0..self.edges.len() * 2 {
            for (to, _) in self.steps(kind, place) {
                graph.add_edge(NodeIndex::new(place), NodeIndex::new(to), ());
            }
        }
        let knots = kosaraju_scc(&graph).into_iter().filter(|knot| knot.len() > 1);
        knots.map(|knot| knot.into_iter().map(NodeIndex::index).collect()).collect()
    }

    /// The shortest cycle through one of the knot's first places.
    fn shortest(&self, kind: Cycles, knot: &[usize]) -> Option<Vec<Step>> {
        const TRIED: usize = 50;
        let inside: BTreeSet<usize> = knot.iter().copied().collect();
        let cycles = knot.iter().take(TRIED).filter_map(|start| {
            let mut from: HashMap<usize, (usize, Why)> = HashMap::new();
            let mut queue = VecDeque::from([*start]);
            while let Some(place) = queue.pop_front() {
                for (to, why) in self.steps(kind, place) {
                    if !inside.contains(&to) || from.contains_key(&to) {
                        continue;
                    }
                    from.insert(to, (place, why));
                    if to == *start {
                        return Some(walk_back(&from, to));
                    }
                    queue.push_back(to);
                }
            }
            None
        });
        cycles.min_by_key(Vec::len)
    }
}

fn walk_back(from: &HashMap<usize, (usize, Why)>, end: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut place = end;
    loop {
        let (before, why) = from[&place];
        steps.push((before / 2, why, place / 2));
        place = before;
        if place == end {
            steps.reverse();
            return steps;
        }
    }
}
