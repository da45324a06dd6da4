//! Pictures of a run: throughput with its checkpoints, latencies as bands, memory and disk, I/O and
//! processors. As SVG whose text is text: no font is needed to draw it.
//!
//! Always true: only shown phases are drawn, on one axis of the seconds in which a server was at
//! work, so that two servers that took turns lie over each other.

use crate::figures::{Report, Second, ServerFigures};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 340);
pub(crate) const FONT: &str = "sans-serif";
/// One for each line of a picture: leaf green, rust, sky, violet.
pub(crate) const COLORS: [RGBColor; 4] =
    [RGBColor(38, 122, 62), RGBColor(196, 84, 32), RGBColor(44, 110, 180), RGBColor(128, 80, 150)];
const MARK: RGBColor = RGBColor(150, 150, 150);
/// Rates of phases that differ by more than this share a logarithmic axis.
const FAR_APART: f64 = 30.0;

/// One picture.
pub(crate) struct Picture {
    pub(crate) name: &'static str,
    pub(crate) caption: String,
    pub(crate) svg: String,
}

/// A line: its name and what it shows of each second.
struct Line<'a> {
    name: String,
    points: Vec<(f64, f64)>,
    server: &'a ServerFigures,
}

/// All pictures of a run.
pub(crate) fn all(report: &Report) -> Result<Vec<Picture>> {
    let name = &report.experiment;
    let two = report.servers.len() > 1;
    let label = |server: &ServerFigures, what: &str| match (two, what) {
        (false, what) => what.to_owned(),
        (true, what) => format!("{what}, {}", server.product),
    };
    let mut pictures = Vec::new();
    let units: Vec<&str> = report
        .servers
        .iter()
        .flat_map(|server| &server.phases)
        .filter(|phase| phase.shown)
        .map(|phase| phase.unit)
        .collect();
    let unit = match units.first() {
        Some(first) if units.iter().all(|unit| unit == first) => first,
        _ => "operations",
    };
    let lines = |what: fn(&Second) -> Option<f64>, title: &str| -> Vec<Line<'_>> {
        let line =
            |server| Line { name: label(server, title), points: points(server, what), server };
        report.servers.iter().map(line).filter(|line| !line.points.is_empty()).collect()
    };
    let rates = lines(|second| Some(second.units_per_s), &format!("{unit}/s"));
    let caption = format!("{name}: {unit} a second. Dotted lines are the ends of checkpoints.");
    pictures.push(draw("throughput", caption, &rates, &format!("{unit}/s"), apart(&rates))?);

    let mut latency = lines(|s| s.max_us.map(|us| us as f64 / 1e3), "slowest");
    latency.extend(lines(|s| s.p99_us.map(|us| us as f64 / 1e3), "p99"));
    latency.extend(lines(|s| s.p50_us.map(|us| us as f64 / 1e3), "p50"));
    let caption = format!("{name}: how long an operation took, each second.");
    pictures.push(draw("latency", caption, &latency, "ms", true)?);

    let mut memory = lines(|s| s.resident_bytes.map(|b| b as f64 / 1e6), "resident");
    memory.extend(lines(|s| s.cache_bytes.map(|b| b as f64 / 1e6), "cache"));
    memory.extend(lines(|s| s.disk_bytes.map(|b| b as f64 / 1e6), "on disk"));
    let caption = format!("{name}: memory of the server, its cache, and the data on disk.");
    pictures.push(draw("memory", caption, &memory, "MB", false)?);

    let mut io =
        lines(|s| s.written_bytes.map(|bytes| bytes as f64 / 1e6 / s.length_s), "written, MB/s");
    io.extend(lines(|s| s.read_bytes.map(|bytes| bytes as f64 / 1e6 / s.length_s), "read, MB/s"));
    io.extend(lines(|s| s.cpu_cores.map(|cores| cores * 100.0), "processors, %"));
    io.extend(
        lines(|s| Some(s.stolen * 100.0), "taken by the hypervisor, %")
            .into_iter()
            .filter(|line| line.points.iter().any(|(_, share)| *share > 0.0)),
    );
    let caption = format!("{name}: what the server wrote and read, and the processors it used.");
    pictures.push(draw("io", caption, &io, "MB/s, %", false)?);
    pictures.retain(|picture| !picture.svg.is_empty());
    Ok(pictures)
}

/// The seconds of shown phases; very short ones tell no rate.
fn shown(server: &ServerFigures) -> impl Iterator<Item = &Second> {
    let hidden = |name: &str| server.phases.iter().any(|phase| phase.phase == name && !phase.shown);
    server.seconds.iter().filter(move |second| second.length_s >= 0.5 && !hidden(&second.phase))
}

fn points(server: &ServerFigures, what: fn(&Second) -> Option<f64>) -> Vec<(f64, f64)> {
    shown(server).filter_map(|second| what(second).map(|value| (second.at_s, value))).collect()
}

fn apart(lines: &[Line<'_>]) -> bool {
    let mut medians: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.server.phases.iter().filter(|phase| phase.shown))
        .map(|phase| phase.units_per_s)
        .filter(|rate| *rate > 0.0)
        .collect();
    medians.sort_by(f64::total_cmp);
    matches!((medians.first(), medians.last()), (Some(least), Some(most)) if most / least > FAR_APART)
}

fn draw(
    name: &'static str,
    caption: String,
    lines: &[Line<'_>],
    unit: &str,
    logarithmic: bool,
) -> Result<Picture> {
    let mut svg = String::new();
    let values = || lines.iter().flat_map(|line| &line.points);
    let (from, to) = span(values().map(|(at, _)| *at));
    let (least, most) = span(values().map(|(_, value)| *value).filter(|value| *value > 0.0));
    if lines.is_empty() || !least.is_finite() || !from.is_finite() {
        return Ok(Picture { name, caption, svg });
    }
    let to = to.max(from + 1.0);
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    if logarithmic {
        let range = (least / 1.5..most * 1.5).log_scale();
        plot(&root, from..to, range, lines, unit, (least / 1.5, most * 1.5))?;
    } else {
        plot(&root, from..to, 0.0..most * 1.1, lines, unit, (0.0, most * 1.1))?;
    }
    root.present().map_err(failed)?;
    drop(root);
    Ok(Picture { name, caption, svg })
}

fn plot<Y>(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    x: std::ops::Range<f64>,
    y: Y,
    lines: &[Line<'_>],
    unit: &str,
    (bottom, top): (f64, f64),
) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(root)
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 13))
        .x_desc("seconds")
        .y_desc(unit)
        .y_label_formatter(&|value| short(*value))
        .x_label_formatter(&|value| short(*value))
        .draw()
        .map_err(failed)?;
    let Some(first) = lines.first().map(|line| line.server) else { return Ok(()) };
    for at in shown(first).filter(|s| s.checkpoints.is_some_and(|count| count > 0)).map(|s| s.at_s)
    {
        let mark = DashedLineSeries::new([(at, bottom), (at, top)], 2, 4, MARK.stroke_width(1));
        chart.draw_series(mark).map_err(failed)?;
    }
    let mut phase = None;
    let named = first.phases.iter().filter(|phase| phase.shown).count() > 1;
    for second in shown(first).filter(|_| named) {
        if phase != Some(&second.phase) {
            phase = Some(&second.phase);
            let at = second.at_s - second.length_s;
            chart
                .draw_series([PathElement::new([(at, bottom), (at, top)], MARK.stroke_width(1))])
                .map_err(failed)?;
            let text = Text::new(second.phase.clone(), (at, top), (FONT, 12).into_font());
            chart.draw_series([text]).map_err(failed)?;
        }
    }
    for (at, line) in lines.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let points = line.points.iter().map(|(at, value)| (*at, value.max(bottom)));
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))
            .map_err(failed)?
            .label(line.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 13))
        .draw()
        .map_err(failed)?;
    Ok(())
}

/// The least and the most; infinite the wrong way round where there is nothing.
pub(crate) fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    })
}

/// `1.5k`, `20M`: few letters on an axis.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        big if big >= 1e6 => format!("{}M", tidy(value / 1e6)),
        middle if middle >= 1e3 => format!("{}k", tidy(value / 1e3)),
        _ => tidy(value),
    }
}

fn tidy(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` hands it over")]
pub(crate) fn failed<E: std::error::Error + Send + Sync>(
    error: DrawingAreaErrorKind<E>,
) -> anyhow::Error {
    anyhow!("a picture cannot be drawn: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        for (value, text) in [(0.0, "0"), (0.25, "0.25"), (1500.0, "1.5k"), (2e7, "20M")] {
            assert_eq!(short(value), text);
        }
    }
}
