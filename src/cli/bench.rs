use super::{args, kernels, report::table, run::spinner};
use mla_prologue::{
    Result,
    bench::{
        Floor, LAYERS, SHAPES, Shape, Timing, Work, first_result, floor, measure, plot, reference,
    },
    file,
    kernel::Lanes,
    operator::Invalid,
};
use serde_json::{Value, json};

/// Measures every shape with pads written, with pads known to be zero, and unfused.
pub fn bench(args: &args::Bench) -> Result<()> {
    let asked = args.shape.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    for path in [&args.plot, &args.report.json].into_iter().flatten() {
        file::check_destination(path)?;
    }
    let spinner = spinner("opening the device");
    let (device, [opened, first]) = first_result(&args.device, SHAPES[0])?;
    let cpu = device.strategy().lanes == Lanes::Unit;
    // A CPU would take minutes for the larger ones.
    let usual = SHAPES.iter().filter(|shape| !cpu || shape.tokens * shape.padded_heads <= 1 << 16);
    let shapes = if asked.is_empty() { usual.copied().collect() } else { asked };
    spinner.set_message("measuring the limits");
    let floor = floor(&device)?;
    let (mut rows, mut results, mut json) = (Vec::new(), Vec::new(), Vec::new());
    for shape in shapes {
        spinner.set_message(shape.to_string());
        let timings = measure(&device, shape)?;
        let reference = if cpu { Some(reference(shape)?) } else { None };
        for timing in &timings {
            rows.push(row(shape, timing, floor.copy, reference));
            json.push(record(shape, timing, reference));
        }
        results.push((shape, timings));
    }
    spinner.finish_and_clear();
    let title = format!("{}, {}", device.name(), device.describe());
    let mut text = format!("{title}\n{}\n\n", limits(&floor, opened, first));
    let mut header = vec![
        "tokens",
        "heads",
        "how",
        "graph us",
        "rotated us",
        "stream us",
        "host us",
        "GB/s",
        "of copy",
    ];
    if cpu {
        header.push("reference us");
    }
    text += &table(&header, rows);
    text += &steps(&results);
    let json = json!({
        "device": device.name(), "is": device.describe(), "opened_s": opened, "first_result_s": first,
        "copy_bytes_s": floor.copy, "empty_stream_s": floor.stream, "empty_host_s": floor.host,
        "results": json,
    });
    // The table first: a picture that cannot be written does not lose it.
    args.report.write(&text, &json)?;
    match &args.plot {
        Some(path) => plot(path, &title, floor.copy, &results),
        None => Ok(()),
    }
}

fn limits(floor: &Floor, opened: f64, first: f64) -> String {
    format!(
        "copying {:.0} GB/s; an empty kernel with as many arguments {:.2} us on a stream, {:.2} us of the \
         calling thread\ndevice opened in {:.0} ms, first result {:.0} ms later ({}=0 compiles the kernel anew)",
        floor.copy / 1e9,
        floor.stream * 1e6,
        floor.host * 1e6,
        opened * 1e3,
        first * 1e3,
        kernels::SWITCH,
    )
}

fn row(shape: Shape, timing: &Timing, copy: f64, reference: Option<f64>) -> Vec<String> {
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    let rate = shape.bytes(timing.work) as f64 / timing.best();
    let mut row = vec![
        shape.tokens.to_string(),
        format!("{} to {}", shape.heads, shape.padded_heads),
        timing.work.name().into(),
        timing.graph.map_or("-".into(), us),
        timing.rotated.map_or("-".into(), us),
        us(timing.stream),
        us(timing.host),
        format!("{:.0}", rate / 1e9),
        format!("{:.0} %", 100.0 * rate / copy),
    ];
    row.extend(reference.map(us));
    row
}

fn record(shape: Shape, timing: &Timing, reference: Option<f64>) -> Value {
    json!({
        "tokens": shape.tokens, "heads": shape.heads, "padded_heads": shape.padded_heads,
        "how": timing.work.name(), "graph_s": timing.graph, "rotated_s": timing.rotated,
        "layers": timing.layers, "stream_s": timing.stream, "host_s": timing.host,
        "bytes": shape.bytes(timing.work), "reference_s": reference,
    })
}

/// A model's step, whose layers were captured in one graph, against as many launches.
fn steps(results: &[(Shape, Vec<Timing>)]) -> String {
    let mut text = String::new();
    for (shape, timings) in results {
        let written = timings.iter().find(|timing| timing.work == Work::Written);
        let Some((timing, rotated)) = written.and_then(|t| Some((t, t.rotated?))) else { continue };
        if timing.layers == LAYERS {
            let all = |seconds: f64| seconds * LAYERS as f64 * 1e6;
            text += &format!(
                "{}{LAYERS} layers of {shape}: {:.0} us in one graph, {:.0} us launched one by one\n",
                if text.is_empty() { "\n" } else { "" },
                all(rotated),
                all(timing.stream)
            );
        }
    }
    text
}

fn parse(text: &str) -> Result<Shape, Invalid> {
    let must = "tokens, live heads and padded heads, as in 4096,16,64";
    let numbers: Option<Vec<usize>> =
        text.split(',').map(|number| number.trim().parse().ok()).collect();
    let Some(&[tokens, heads, padded_heads]) = numbers.as_deref() else {
        return Err(Invalid::new("--shape", text, must));
    };
    let shape = Shape::new(tokens, heads, padded_heads);
    shape
        .check()
        .map_err(|error| Invalid::new("--shape", text, format_args!("{must} ({error})")))?;
    Ok(shape)
}
