//! A curve's picture: the server's processor time an operation on the left, p99 on the right, both axes logarithmic.

use super::{CurveFigures, Line, LinePoint};
use crate::report::picture::{COLORS, FONT, failed, short, span};
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 380);
/// Where a point at 0 is drawn on an axis that has no 0.
const ZERO: f64 = 0.5;
/// By what the axis of costs goes on below the least, for each line of the legend.
const LEGEND_ROOM: f64 = 1.7;
/// A line's own color is lighter from the fifth line on.
const LIGHTER: f64 = 0.55;

pub(super) fn draw(curve: &CurveFigures) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let (left, right) = root.split_horizontally(SIZE.0 / 2);
    plot(&left, curve, "server CPU, µs an operation", |point| point.cpu_us)?;
    plot(&right, curve, "p99, µs", |point| point.p99_us.map(|us| us as f64))?;
    root.present().map_err(failed)?;
    drop((left, right, root));
    Ok(svg)
}

fn plot(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    curve: &CurveFigures,
    unit: &str,
    tell: fn(&LinePoint) -> Option<f64>,
) -> Result<()> {
    let lines: Vec<(&Line, Vec<(f64, f64)>)> =
        curve.operations.iter().map(|line| (line, points(line, tell))).collect();
    let values = || lines.iter().flat_map(|(_, points)| points);
    let (from, to) = span(values().map(|(at, _)| *at));
    let (least, most) = span(values().map(|(_, cost)| *cost));
    if !from.is_finite() || !least.is_finite() {
        return Ok(());
    }
    // Room for the legend below the lines.
    let below = LEGEND_ROOM.powi(lines.len() as i32);
    let x = (from / 1.3..to * 1.3).log_scale();
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(x, (least / below..most * 1.5).log_scale())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 13))
        .x_desc(curve.curve.as_str())
        .y_desc(unit)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()
        .map_err(failed)?;
    for (at, (line, points)) in lines.iter().enumerate().filter(|(_, line)| !line.1.is_empty()) {
        let part = if at < COLORS.len() { 1.0 } else { LIGHTER };
        let color = COLORS[at % COLORS.len()].mix(part);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))
            .map_err(failed)?
            .label(line.operation.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        let dots = points.iter().map(|at| Circle::new(*at, 3, color.filled()));
        chart.draw_series(dots).map_err(failed)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 12))
        .draw()
        .map_err(failed)?;
    Ok(())
}

fn points(line: &Line, tell: fn(&LinePoint) -> Option<f64>) -> Vec<(f64, f64)> {
    let place = |at: u64| if at == 0 { ZERO } else { at as f64 };
    let told = line.points.iter().filter_map(|point| Some((place(point.at), tell(point)?)));
    told.filter(|(_, cost)| *cost > 0.0).collect()
}
