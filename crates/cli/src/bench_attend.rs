//! `bench --op attend`.

use crate::{as_option, bench::Bench, report::table, run::spinner};
use mla_prologue_bench::attend::{Timing, Workload, measure, workloads};
use mla_prologue_cases::{Error, Result};
use mla_prologue_kernel::Device;
use mla_prologue_operator::Invalid;
use serde_json::{Value, json};

/// Measures attention on every shape.
pub fn bench(args: &Bench) -> Result<()> {
    let asked = args.shape.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.plot {
        return Err(Invalid::new("--plot", path.display(), "absent with --op attend").into());
    }
    args.report.check(&[], &[])?;
    let spinner = spinner("opening the device");
    let device = Device::open(&args.device).map_err(Error::from);
    let device = device.map_err(as_option("device", "--device"))?;
    let workloads = if asked.is_empty() { workloads(&device) } else { asked };
    let (mut rows, mut records) = (Vec::new(), Vec::new());
    for workload in workloads {
        spinner.set_message(workload.to_string());
        let timing = measure(&device, workload)?;
        rows.push(row(workload, &timing));
        records.push(record(workload, &timing));
    }
    spinner.finish_and_clear();
    let header =
        ["tokens", "heads", "entries", "graph us", "stream us", "host us", "GB/s", "TFLOP/s"];
    let text = format!("{}, {}\n\n{}", device.name(), device.describe(), table(&header, rows));
    let json = json!({"device": device.name(), "is": device.describe(), "results": records});
    args.report.write(&text, &json)
}

fn row(workload: Workload, timing: &Timing) -> Vec<String> {
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    let best = timing.graph.unwrap_or(timing.stream);
    vec![
        workload.tokens.to_string(),
        workload.heads.to_string(),
        workload.entries.to_string(),
        timing.graph.map_or("-".into(), us),
        us(timing.stream),
        us(timing.host),
        format!("{:.0}", workload.bytes() as f64 / best / 1e9),
        format!("{:.2}", 2.0 * workload.fmas() as f64 / best / 1e12),
    ]
}

fn record(workload: Workload, timing: &Timing) -> Value {
    json!({
        "tokens": workload.tokens, "heads": workload.heads, "entries": workload.entries,
        "graph_s": timing.graph, "stream_s": timing.stream, "host_s": timing.host,
        "bytes": workload.bytes(),
    })
}

fn parse(text: &str) -> Result<Workload, Invalid> {
    let must = "tokens, heads and entries, as in 128,16,640";
    let numbers: Option<Vec<usize>> =
        text.split(',').map(|number| number.trim().parse().ok()).collect();
    let Some(&[tokens, heads, entries]) = numbers.as_deref() else {
        return Err(Invalid::new("--shape", text, must));
    };
    let workload = Workload { tokens, heads, entries };
    let case = workload.case();
    case.map_err(|error| Invalid::new("--shape", text, format_args!("{must} ({error})")))?;
    Ok(workload)
}
