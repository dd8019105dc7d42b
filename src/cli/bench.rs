use super::{args, report::table, run::spinner};
use mla_prologue::{
    Result,
    bench::{SHAPES, Shape, Timing, copy_bandwidth, time, time_reference},
    kernel::{Device, Lanes},
    operator::Invalid,
};
use serde_json::json;

/// Measures every shape with pads written, and with pads known to be zero.
pub fn bench(args: &args::Bench) -> Result<()> {
    let asked = args.shape.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    let device = Device::open(&args.device)?;
    let cpu = device.strategy().lanes == Lanes::Unit;
    // A CPU would take minutes for the larger ones.
    let usual = SHAPES.iter().filter(|shape| !cpu || shape.tokens * shape.padded_heads <= 1 << 16);
    let shapes = if asked.is_empty() { usual.copied().collect() } else { asked };
    let spinner = spinner("measuring the copy bandwidth");
    let copy = copy_bandwidth(&device)?;
    let (mut rows, mut results) = (Vec::new(), Vec::new());
    for shape in shapes {
        spinner.set_message(format!(
            "{} tokens, {} to {} heads",
            shape.tokens, shape.heads, shape.padded_heads
        ));
        let reference = if cpu { Some(time_reference(shape)?) } else { None };
        for known_zero in [false, true] {
            if known_zero && shape.heads == shape.padded_heads {
                continue;
            }
            let timing = time(&device, shape, known_zero)?;
            rows.push(row(shape, known_zero, &timing, copy, reference));
            results.push(json!({
                "tokens": shape.tokens, "heads": shape.heads, "padded_heads": shape.padded_heads,
                "pads": if known_zero { "known zero" } else { "written" },
                "graph_s": timing.graph, "stream_s": timing.stream, "host_s": timing.host,
                "bytes": timing.bytes, "reference_s": reference,
            }));
        }
    }
    spinner.finish_and_clear();
    let mut text =
        format!("{}, {}; copying: {:.0} GB/s\n\n", device.name(), device.describe(), copy / 1e9);
    let mut header =
        vec!["tokens", "heads", "pads", "graph us", "stream us", "host us", "GB/s", "of copy"];
    if cpu {
        header.push("unfused us");
    }
    text += &table(&header, rows);
    let json = json!({"device": device.name(), "is": device.describe(), "copy_bytes_s": copy, "results": results});
    args.report.write(&text, &json)
}

fn row(
    shape: Shape,
    known_zero: bool,
    timing: &Timing,
    copy: f64,
    reference: Option<f64>,
) -> Vec<String> {
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    let rate = timing.bytes as f64 / timing.graph.unwrap_or(timing.stream);
    let mut row = vec![
        shape.tokens.to_string(),
        format!("{} to {}", shape.heads, shape.padded_heads),
        if known_zero { "known zero" } else { "written" }.into(),
        timing.graph.map_or("-".into(), us),
        us(timing.stream),
        us(timing.host),
        format!("{:.0}", rate / 1e9),
        format!("{:.0} %", 100.0 * rate / copy),
    ];
    row.extend(reference.map(us));
    row
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
