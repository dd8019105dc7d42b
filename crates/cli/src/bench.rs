use crate::{
    as_option, bench_attend,
    report::{Report, table},
    run::spinner,
    source::Op,
};
use clap::Args;
use mla_prologue_bench::{
    Floor, LAYERS, Timing, Variant, WORKLOADS, Workload, first_result, floor, measure, plot,
    reference,
};
use mla_prologue_cases::Result;
use mla_prologue_kernel::Lanes;
use mla_prologue_operator::Invalid;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Args)]
pub struct Bench {
    /// What is measured
    #[arg(long, value_enum, default_value_t)]
    pub op: Op,
    /// Tokens, live heads and padded heads of a problem, as in 4096,16,64; for attention tokens, heads and entries, as in
    /// 128,16,640; may be repeated
    #[arg(long, value_name = "T,H,P")]
    pub shape: Vec<String>,
    /// auto, cuda:0, rocm:0, vulkan:0 or cpu
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Also draw the results into this SVG file (of the prologue)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    #[command(flatten)]
    pub report: Report,
}

/// Measures an operator on every shape.
pub fn bench(args: &Bench) -> Result<()> {
    match args.op {
        Op::Prologue => bench_prologue(args),
        Op::Attend => bench_attend::bench(args),
    }
}

/// With padding written, with padding heads known to be zero, and unfused.
fn bench_prologue(args: &Bench) -> Result<()> {
    let asked = args.shape.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    let plot_file = args.plot.as_deref().map(|path| ("--plot", path));
    args.report.check(&[], plot_file.as_slice())?;
    let spinner = spinner("opening the device");
    let (device, [opened, first]) =
        first_result(&args.device, WORKLOADS[0]).map_err(as_option("device", "--device"))?;
    let cpu = device.strategy().lanes == Lanes::Unit;
    // A CPU would take minutes for the larger ones.
    let usual = WORKLOADS
        .iter()
        .filter(|workload| !cpu || workload.tokens * workload.padded_heads <= 1 << 16);
    let workloads = if asked.is_empty() { usual.copied().collect() } else { asked };
    spinner.set_message("measuring the limits");
    let floor = floor(&device)?;
    let (mut rows, mut results, mut json) = (Vec::new(), Vec::new(), Vec::new());
    for workload in workloads {
        spinner.set_message(workload.to_string());
        let timings = measure(&device, workload)?;
        let reference = if cpu { Some(reference(workload)?) } else { None };
        for timing in &timings {
            rows.push(row(workload, timing, floor.copy, reference));
            json.push(record(workload, timing, reference));
        }
        results.push((workload, timings));
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
         calling thread\ndevice opened in {:.0} ms, first result {:.0} ms later",
        floor.copy / 1e9,
        floor.stream * 1e6,
        floor.host * 1e6,
        opened * 1e3,
        first * 1e3,
    )
}

fn row(workload: Workload, timing: &Timing, copy: f64, reference: Option<f64>) -> Vec<String> {
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    let rate = workload.bytes(timing.variant) as f64 / timing.best();
    let mut row = vec![
        workload.tokens.to_string(),
        format!("{} to {}", workload.heads, workload.padded_heads),
        timing.variant.name().into(),
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

fn record(workload: Workload, timing: &Timing, reference: Option<f64>) -> Value {
    json!({
        "tokens": workload.tokens, "heads": workload.heads, "padded_heads": workload.padded_heads,
        "how": timing.variant.name(), "graph_s": timing.graph, "rotated_s": timing.rotated,
        "layers": timing.layers, "stream_s": timing.stream, "host_s": timing.host,
        "bytes": workload.bytes(timing.variant), "reference_s": reference,
    })
}

/// A model's step, whose layers were captured in one graph, against as many launches.
fn steps(results: &[(Workload, Vec<Timing>)]) -> String {
    let mut text = String::new();
    for (workload, timings) in results {
        let written = timings.iter().find(|timing| timing.variant == Variant::Written);
        let Some((timing, rotated)) = written.and_then(|t| Some((t, t.rotated?))) else { continue };
        if timing.layers == LAYERS {
            let all = |seconds: f64| seconds * LAYERS as f64 * 1e6;
            text += &format!(
                "{}{LAYERS} layers of {workload}: {:.0} us in one graph, {:.0} us launched one by one\n",
                if text.is_empty() { "\n" } else { "" },
                all(rotated),
                all(timing.stream)
            );
        }
    }
    text
}

fn parse(text: &str) -> Result<Workload, Invalid> {
    let must = "tokens, live heads and padded heads, as in 4096,16,64";
    let numbers: Option<Vec<usize>> =
        text.split(',').map(|number| number.trim().parse().ok()).collect();
    let Some(&[tokens, heads, padded_heads]) = numbers.as_deref() else {
        return Err(Invalid::new("--shape", text, must));
    };
    let workload = Workload::new(tokens, heads, padded_heads);
    workload
        .check()
        .map_err(|error| Invalid::new("--shape", text, format_args!("{must} ({error})")))?;
    Ok(workload)
}
