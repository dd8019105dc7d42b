//! A picture of a run: time against tokens, and how near to the memory's limit.

use super::{Timing, Variant, Workload};
use mla_prologue_cases::{Error, Result, file};
use plotters::{coord::Shift, prelude::*};
use std::{fmt::Display, ops::Range, path::Path};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws an SVG of what was measured. `copy` is the bandwidth of a copy in bytes a second.
///
/// # Errors
/// A file that cannot be written.
pub fn plot(
    path: &Path,
    title: &str,
    copy: f64,
    results: &[(Workload, Vec<Timing>)],
) -> Result<()> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (1200, 560)).into_drawing_area();
        let drawn = draw(&area, title, copy, results);
        drawn.map_err(|error| Error::file("draw", path, error))?;
    }
    file::replace(path, [svg.as_bytes()])
}

const VARIANTS: [(Variant, RGBColor, &str); 3] = [
    (Variant::Unfused, RGBColor(0xD5, 0x5E, 0x00), "unfused, six kernels"),
    (Variant::Written, RGBColor(0x00, 0x72, 0xB2), "fused"),
    (Variant::KnownZero, RGBColor(0x00, 0x9E, 0x73), "fused, padding known zero"),
];
const TITLE_FONT: (&str, i32) = ("sans-serif", 20);
const CAPTION_FONT: (&str, i32) = ("sans-serif", 17);
const AXIS_FONT: (&str, i32) = ("sans-serif", 15);
const LABEL_FONT: (&str, i32) = ("sans-serif", 13);
const GREY: RGBColor = RGBColor(0x77, 0x77, 0x77);

fn draw(
    area: &Area,
    title: &str,
    copy: f64,
    results: &[(Workload, Vec<Timing>)],
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let area = area.titled(title, TITLE_FONT)?;
    let (left, right) = area.split_horizontally(600);
    times(&left, copy, results)?;
    bandwidth(&right, copy, results)?;
    area.present()?;
    Ok(())
}

/// Microseconds against tokens, for the head counts that were measured most often.
fn times(
    area: &Area,
    copy: f64,
    results: &[(Workload, Vec<Timing>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let heads = |workload: &Workload| (workload.heads, workload.padded_heads);
    let count = |wanted| results.iter().filter(|(workload, _)| heads(workload) == wanted).count();
    let Some(most) = results.iter().map(|(workload, _)| heads(workload)).max_by_key(|&h| count(h))
    else {
        return Ok(());
    };
    let mut shown: Vec<_> =
        results.iter().filter(|(workload, _)| heads(workload) == most).collect();
    shown.sort_by_key(|(workload, _)| workload.tokens);
    let floor = |workload: &Workload| workload.bytes(Variant::Written) as f64 / copy * 1e6;
    let all = shown.iter().flat_map(|(_, timings)| timings.iter().map(|t| t.best() * 1e6));
    let tokens = shown.iter().map(|(workload, _)| workload.tokens as f64);
    let caption = format!("{} live heads padded to {}", most.0, most.1);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, CAPTION_FONT)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(room(tokens).log_scale(), room(all).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("tokens a call")
        .y_desc("microseconds a call")
        .x_label_formatter(&plain)
        .y_label_formatter(&plain)
        .light_line_style(WHITE)
        .axis_desc_style(AXIS_FONT)
        .label_style(LABEL_FONT)
        .draw()?;
    let line = shown.iter().map(|(workload, _)| (workload.tokens as f64, floor(workload)));
    chart
        .draw_series(DashedLineSeries::new(line, 6, 4, GREY.stroke_width(1)))?
        .label("its bytes at the copy's rate")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], GREY));
    for (variant, color, name) in VARIANTS {
        let points: Vec<(f64, f64)> = shown
            .iter()
            .filter_map(|(workload, timings)| {
                let timing = timings.iter().find(|timing| timing.variant == variant)?;
                Some((workload.tokens as f64, timing.best() * 1e6))
            })
            .collect();
        if points.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(LABEL_FONT)
        .draw()?;
    Ok(())
}

/// The roofline: bytes a second against bytes a call, with the copy's rate as the roof.
fn bandwidth(
    area: &Area,
    copy: f64,
    results: &[(Workload, Vec<Timing>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let point = |workload: &Workload, timing: &Timing| {
        let bytes = workload.bytes(timing.variant) as f64;
        (bytes / 1e6, bytes / timing.best() / 1e9)
    };
    let points: Vec<(Workload, Variant, (f64, f64))> = results
        .iter()
        .flat_map(|(workload, timings)| {
            timings.iter().map(|t| (*workload, t.variant, point(workload, t)))
        })
        .collect();
    let top = points.iter().map(|(.., (_, rate))| *rate).fold(copy / 1e9, f64::max) * 1.15;
    let megabytes = room(points.iter().map(|(.., (megabytes, _))| *megabytes));
    let mut chart = ChartBuilder::on(area)
        .caption("distance to the memory's limit", CAPTION_FONT)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(megabytes.clone().log_scale(), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("megabytes that a call must move")
        .y_desc("GB/s of them")
        .x_label_formatter(&plain)
        .y_label_formatter(&plain)
        .light_line_style(WHITE)
        .axis_desc_style(AXIS_FONT)
        .label_style(LABEL_FONT)
        .draw()?;
    let roof = [(megabytes.start, copy / 1e9), (megabytes.end, copy / 1e9)];
    chart
        .draw_series(DashedLineSeries::new(roof, 6, 4, GREY.stroke_width(1)))?
        .label(format!("a copy: {:.0} GB/s", copy / 1e9))
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], GREY));
    for (variant, color, name) in VARIANTS {
        let of_variant = points.iter().filter(|(_, other, _)| *other == variant);
        let dots: Vec<_> =
            of_variant.map(|&(.., point)| Circle::new(point, 4, color.filled())).collect();
        if dots.is_empty() {
            continue;
        }
        chart
            .draw_series(dots)?
            .label(name)
            .legend(move |(x, y)| Circle::new((x + 10, y), 4, color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(LABEL_FONT)
        .draw()?;
    Ok(())
}

/// The powers of ten around some positive values.
fn room(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values
        .fold((f64::MAX, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
    let power = |value: f64| 10f64.powf(value);
    if high > 0.0 {
        power((low / 1.1).log10().floor())..power((high * 1.1).log10().ceil())
    } else {
        1.0..10.0
    }
}

/// A number as people write it.
fn plain(value: &f64) -> String {
    let shown: &dyn Display = if *value >= 1.0 { &value.round() } else { value };
    shown.to_string()
}
