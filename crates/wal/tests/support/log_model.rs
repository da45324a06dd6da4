//! A model of a log: what was appended to it, and how much of that no crash may take.

use testkit::{Failure, Gen};
use wal::{Lsn, NewRecord, Place, Priority, Replay, Wal, WalOptions};

/// Bodies of 1 KiB: records of up to 700 bytes cross segments often.
pub(crate) const TINY: WalOptions =
    WalOptions { segment_bytes: 2048, recycle: 1, buffer_bytes: 1500, compress_from: 100 };

/// What was appended, in order, and how much of it was acknowledged.
#[derive(Default)]
pub(crate) struct LogModel {
    /// Each with the position behind it, 0 where that is not known.
    pub(crate) records: Vec<(Lsn, Vec<u8>)>,
    pub(crate) acknowledged: usize,
    /// Where replay starts: the position behind record number `.1 - 1`.
    pub(crate) checkpoint: (Lsn, usize),
    next: u64,
}

impl LogModel {
    /// One record, or every third time some of them together.
    pub(crate) fn append(&mut self, wal: &Wal, most: u64) -> Result<(), Failure> {
        if self.next.is_multiple_of(3) {
            self.append_some(wal, most)
        } else {
            self.append_one(wal, most)
        }
    }

    fn append_some(&mut self, wal: &Wal, most: u64) -> Result<(), Failure> {
        let heads: Vec<[u8; 8]> = (1..=4).map(|n| (self.next + n).to_le_bytes()).collect();
        let bodies: Vec<Vec<u8>> = (1..=4).map(|n| Gen::new(self.next + n).bytes(most)).collect();
        self.next += 4;
        let pieces: Vec<[&[u8]; 1]> = heads.iter().map(|head| [&head[..]]).collect();
        let compressed: Vec<_> = bodies.iter().map(|body| wal.body(body)).collect();
        let records: Vec<_> =
            pieces.iter().zip(&compressed).map(|(head, body)| NewRecord::new(head, body)).collect();
        let wholes = heads.iter().zip(&bodies).map(|(head, body)| [&head[..], body].concat());
        let (mut places, mut next, mut wholes) = (Vec::<Place>::new(), 0, wholes);
        while let Some(first) = records.get(next) {
            places.clear();
            wal.try_append_all(&records[next..], Priority::Ordinary, |place| places.push(place))?;
            next += places.len();
            self.records
                .extend(places.iter().zip(&mut wholes).map(|(place, whole)| (place.end, whole)));
            if places.is_empty() {
                wal.make_room(first, Priority::Ordinary)?;
            }
        }
        Ok(())
    }

    fn append_one(&mut self, wal: &Wal, most: u64) -> Result<(), Failure> {
        let mut data = Gen::new(self.next);
        self.next += 1;
        let (a, mut b) = (data.bytes(most / 2), data.bytes(most / 2));
        if self.next.is_multiple_of(2) {
            // It can be compressed.
            b.fill(self.next as u8);
        }
        let mut whole = self.next.to_le_bytes().to_vec();
        let head = whole.clone();
        whole.extend_from_slice(&a);
        whole.extend_from_slice(&b);
        // an append may fail after its bytes reached the disk, so it is a fact from here on
        self.records.push((0, whole));
        let end = wal.append_record(&NewRecord::new(&[&head, &a], &wal.body(&b)));
        match end {
            Ok(end) => self.records.last_mut().unwrap().0 = end,
            Err(e) => {
                self.records.pop();
                return Err(e.into());
            }
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self, wal: &Wal) -> Result<(), Failure> {
        wal.sync()?;
        self.acknowledged = self.records.len();
        Ok(())
    }

    /// Everything is synced, and replay starts behind it from now on: where the log may be trimmed to.
    pub(crate) fn checkpoint(&mut self, wal: &Wal) -> Result<Lsn, Failure> {
        self.sync(wal)?;
        self.checkpoint = (self.records.last().map_or(0, |r| r.0), self.records.len());
        Ok(self.checkpoint.0)
    }

    /// Replays; what is found must be a prefix of what was appended, with all that was
    /// acknowledged. From here on it is the truth.
    pub(crate) fn check(&mut self, replay: &mut Replay) -> Result<(), Failure> {
        let (from, first) = self.checkpoint;
        replay.seek(from)?;
        let mut found = first;
        while let Some(record) = replay.next_record()? {
            let expected =
                self.records.get(found).expect("nothing is replayed that was not appended");
            assert_eq!(record.payload, expected.1, "record {found}");
            if expected.0 != 0 {
                assert_eq!(record.end, expected.0, "record {found}");
            }
            self.records[found].0 = record.end;
            found += 1;
        }
        assert!(found >= self.acknowledged, "{found} of {} acknowledged", self.acknowledged);
        self.records.truncate(found);
        Ok(())
    }
}

/// A number of seeds that a long run is asked for.
pub(crate) fn seeds_asked_for() -> Option<u64> {
    let seeds = std::env::var("FERN_CRASH_SEEDS").ok();
    seeds.map(|seeds| seeds.parse().expect("a number of seeds"))
}
