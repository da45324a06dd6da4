//! The report as one page that needs nothing else: tables and pictures inside it.

use super::picture::Picture;
use super::table;
use crate::figures::Report;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;\
padding:0 1rem;color:#1c2a1f;background:#fff}table{border-collapse:collapse;margin:1rem 0}\
td,th{padding:.2rem .55rem;text-align:right;border-bottom:1px solid #dde5dd;\
font-variant-numeric:tabular-nums}td:first-child,th:first-child{text-align:left}\
th{font-weight:600;vertical-align:bottom}code{background:#eef3ee;padding:.1rem .3rem}\
svg{max-width:100%;height:auto}figure{margin:1.5rem 0}figcaption{color:#556}\
.wide{overflow-x:auto}";

/// The page.
pub(crate) fn page(report: &Report, pictures: &[Picture]) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let name = escape(&report.experiment);
    let _ = writeln!(out, "<title>{name} — fern bench</title><style>{STYLE}</style></head><body>");
    let _ = writeln!(out, "<h1>{name}</h1><p>{}</p>", escape(&report.question));
    let machine = &report.machine;
    let _ = writeln!(
        out,
        "<p><code>{}</code><br>{} UTC, clients on {} with {} cores and {} GB</p><ul>",
        escape(&report.command),
        report.started,
        escape(&machine.processor),
        machine.cores,
        machine.memory_bytes / 1_000_000_000
    );
    for server in &report.servers {
        let cache =
            server.cache_limit_bytes.map(|bytes| format!(", a cache of {} MB", bytes >> 20));
        let _ = writeln!(
            out,
            "<li>{}: {} at {}{}</li>",
            server.server,
            escape(&server.product),
            escape(&server.hosts),
            cache.unwrap_or_default()
        );
    }
    out += "</ul>\n";
    for picture in pictures {
        let (svg, caption) = (&picture.svg, escape(&picture.caption));
        let _ = writeln!(out, "<figure>{svg}<figcaption>{caption}</figcaption></figure>");
    }
    section(&mut out, "Phases", &table::phases(report));
    if let [ours, theirs] = report.servers.as_slice() {
        section(&mut out, "Ratios, the first server to the second", &table::ratios(ours, theirs));
    }
    section(&mut out, "Operations", &table::operations(report));
    out += "</body></html>\n";
    out
}

fn section(out: &mut String, title: &str, rows: &[Vec<String>]) {
    let [head, rows @ ..] = rows else { return };
    if rows.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>{title}</h2><div class=\"wide\"><table><tr>");
    for cell in head {
        let _ = write!(out, "<th>{}</th>", escape(cell));
    }
    for row in rows {
        *out += "</tr>\n<tr>";
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
    }
    *out += "</tr></table></div>\n";
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
