//! How much history a member keeps: what the options say, until `replSetResizeOplog` or `replSetExpireOplog` has
//! said something.
//!
//! What is always true: what was said is stored before it is acknowledged, and holds at every later
//! start, whatever the options say then.

use bson::doc;
use bson::raw::RawDocumentBuf;
use catalog::{Catalog, Namespace};
use engine::HistoryOptions;
use errors::{Code, Error, Result};
use std::time::Duration;

/// The least that `replSetResizeOplog` takes, in megabytes.
pub const LEAST_MEGABYTES: f64 = 990.0;
/// The most: a petabyte.
pub const MOST_MEGABYTES: f64 = 1024.0 * 1024.0 * 1024.0;
/// More hours than anybody means, and no number that is none.
pub const MOST_HOURS: f64 = 1e6;

fn namespace() -> Result<Namespace> {
    Namespace::new("local", "replset.oplogSettings")
}

/// Takes over what was said before this start.
pub fn load(catalog: &Catalog) -> Result<()> {
    let Some(history) = catalog.engine().history() else { return Ok(()) };
    let Some(stored) = catalog.system_document(&namespace()?)? else { return Ok(()) };
    let mut options = history.options();
    if let Ok(megabytes) = stored.get_f64("size") {
        options.bytes = bytes_of(megabytes);
    }
    if let Ok(hours) = stored.get_f64("minRetentionHours") {
        options.min_age = age_of(hours);
    }
    history.resize(options);
    Ok(())
}

/// Changes and stores what is kept: megabytes and hours, where they are given. Waits for the disk.
pub fn resize(
    catalog: &std::sync::Arc<Catalog>,
    megabytes: Option<f64>,
    hours: Option<f64>,
) -> Result<()> {
    let Some(history) = catalog.engine().history() else {
        return Err(Error::new(Code::NAMESPACE_NOT_FOUND, "oplog does not exist"));
    };
    let before = catalog.system_document(&namespace()?)?;
    let said = |name| before.as_ref().and_then(|before| before.get_f64(name).ok());
    let mut document = doc! { "_id": "self" };
    if let Some(megabytes) = megabytes.or(said("size")) {
        document.insert("size", megabytes);
    }
    if let Some(hours) = hours.or(said("minRetentionHours")) {
        document.insert("minRetentionHours", hours);
    }
    catalog.put_system_document(&namespace()?, &RawDocumentBuf::try_from(&document)?)?;
    catalog.sync()?;
    let HistoryOptions { bytes, min_age } = history.options();
    history.resize(HistoryOptions {
        bytes: megabytes.map_or(bytes, bytes_of),
        min_age: hours.map_or(min_age, age_of),
    });
    Ok(())
}

/// Megabytes as bytes.
pub fn bytes_of(megabytes: f64) -> u64 {
    (megabytes.clamp(0.0, MOST_MEGABYTES) * 1024.0 * 1024.0) as u64
}

/// Hours as a duration.
pub fn age_of(hours: f64) -> Duration {
    let hours = if hours.is_nan() { 0.0 } else { hours.clamp(0.0, MOST_HOURS) };
    Duration::from_secs_f64(hours * 3600.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::CatalogOptions;
    use engine::Engine;

    #[test]
    fn what_was_said_holds_at_later_starts() {
        let kept = HistoryOptions { bytes: 1 << 20, min_age: Duration::ZERO };
        let engine = Engine::temporary_with(|options| options.history = Some(kept));
        let options = CatalogOptions::new(os::Os::real(), std::env::temp_dir());
        let catalog = Catalog::open(engine.clone(), options).unwrap();
        let history = engine.history().unwrap();
        load(&catalog).unwrap();
        assert_eq!(history.options(), kept);
        resize(&catalog, Some(2000.0), None).unwrap();
        resize(&catalog, None, Some(1.5)).unwrap();
        let said = HistoryOptions { bytes: 2000 << 20, min_age: Duration::from_mins(90) };
        assert_eq!(history.options(), said);
        history.resize(kept);
        load(&catalog).unwrap();
        assert_eq!(history.options(), said, "both, though they were said apart");
    }

    #[test]
    fn numbers_that_cannot_be_are_none() {
        assert_eq!(age_of(f64::NAN), Duration::ZERO);
        assert_eq!(age_of(-1.0), Duration::ZERO);
        assert_eq!(age_of(f64::INFINITY), Duration::from_hours(1_000_000));
        assert_eq!(bytes_of(f64::NAN), 0);
        assert_eq!(bytes_of(1e300), 1 << 50);
    }
}
