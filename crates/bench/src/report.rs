//! What a run leaves: a table, JSON, seconds as CSV, pictures, and a page that holds them all.

pub(crate) mod curves;
pub(crate) mod html;
pub(crate) mod picture;
pub(crate) mod table;

use crate::figures::Report;
use anyhow::Result;
use std::path::Path;

/// Writes `report.json`, `report.txt`, `seconds.csv`, `report.html` and the pictures into `out`.
pub(crate) fn write(report: &Report, table: &str, out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    std::fs::write(out.join("report.json"), serde_json::to_vec_pretty(report)?)?;
    std::fs::write(out.join("report.txt"), table)?;
    let mut csv = csv::Writer::from_path(out.join("seconds.csv"))?;
    for second in report.servers.iter().flat_map(|server| &server.seconds) {
        csv.serialize(second)?;
    }
    csv.flush()?;
    let pictures = picture::all(report)?;
    for picture in &pictures {
        std::fs::write(out.join(format!("{}.svg", picture.name)), &picture.svg)?;
    }
    std::fs::write(out.join("report.html"), html::page(report, &pictures))?;
    Ok(())
}
