use super::{DIFFERENT, args, report::table};
use indicatif::{ProgressBar, ProgressStyle};
use mla_prologue::{
    Call, Output, Result, Target, catalogue, file,
    operator::Invalid,
    verify::{Comparison, Rule, compare},
};
use serde_json::json;
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// One problem's result.
struct Judged {
    name: String,
    /// What it is counted under in the table.
    group: String,
    comparison: Comparison,
    took: Duration,
}

/// Compares the fused kernel with the unfused chain; or, with `--against`, a file with it.
pub fn verify(args: &args::Verify) -> Result<ExitCode> {
    if let Some(output) = &args.against {
        let [input] = args.inputs.as_slice() else {
            let must = "one file, of which --against is the output";
            return Err(
                Invalid::new("IN", format_args!("{} files", args.inputs.len()), must).into()
            );
        };
        let judged = against(input, output)?;
        return conclude(args, &output.display().to_string(), Rule::Exact, &[judged]);
    }
    // What is wrong with a file is found before a device is started.
    let files = args.inputs.iter().map(|path| Ok((path.display().to_string(), file::read(path)?)));
    let files = files.collect::<Result<Vec<_>>>()?;
    let target = Target::open(&args.device.device)?;
    let rule = target.rule();
    let judged = if files.is_empty() {
        matrix(&target, rule)?
    } else {
        let judge =
            |(name, call): &(String, Call)| judge(name.clone(), name.clone(), call, &target, rule);
        files.iter().map(judge).collect::<Result<Vec<_>>>()?
    };
    conclude(args, &target.describe(), rule, &judged)
}

fn against(input: &Path, output: &Path) -> Result<Judged> {
    let call = file::read(input)?;
    let got = Output::read(output, &call.problem)?;
    let name = output.display().to_string();
    let start = Instant::now();
    let want = call.run(&Target::Reference)?;
    let comparison = compare(&call, &want, &got, Rule::Exact);
    Ok(Judged { group: name.clone(), name, comparison, took: start.elapsed() })
}

fn matrix(target: &Target, rule: Rule) -> Result<Vec<Judged>> {
    let base = catalogue::matrix().into_iter().map(|case| (case, false));
    let cases: Vec<_> =
        base.chain(catalogue::modes().into_iter().map(|case| (case, true))).collect();
    let bar = ProgressBar::new(cases.len() as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} problems, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let judged = cases.iter().map(|(case, mode)| {
        let heads = case.spec.query.map_or(0, |query| query.heads);
        let group = if *mode { "modes".into() } else { format!("{heads} heads") };
        let result = judge(case.to_string(), group, &case.call()?, target, rule);
        bar.inc(1);
        result
    });
    let judged = judged.collect();
    bar.finish_and_clear();
    judged
}

fn judge(name: String, group: String, call: &Call, target: &Target, rule: Rule) -> Result<Judged> {
    let want = call.run(&Target::Reference)?;
    let start = Instant::now();
    let got = call.run(target)?;
    let took = start.elapsed();
    Ok(Judged { name, group, comparison: compare(call, &want, &got, rule), took })
}

/// Reports, and tells the exit code.
fn conclude(args: &args::Verify, what: &str, rule: Rule, judged: &[Judged]) -> Result<ExitCode> {
    let wrong = judged.iter().filter(|judged| !judged.comparison.holds()).count();
    let near: usize = judged.iter().map(|judged| judged.comparison.near).sum();
    let mut text = format!("{what}\n\n{}\n", summary(judged));
    for judged in judged {
        if let Some(first) = &judged.comparison.first {
            text +=
                &format!("{}: {} values wrong; {first}\n", judged.name, judged.comparison.wrong);
        }
    }
    let total = judged.len();
    text += &match (wrong, rule, near) {
        (0, Rule::Exact, _) => {
            format!("equal bit for bit to the unfused chain: {total} of {total} problems\n")
        }
        (0, Rule::Band, 0) => format!(
            "equal bit for bit to the unfused chain: {total} of {total} problems (promised here: within band)\n"
        ),
        (0, Rule::Band, _) => format!(
            "within band of the unfused chain: {total} of {total} problems, {near} values one unit in the last place off\n"
        ),
        _ => format!("DIFFERENT from the unfused chain: {wrong} of {total} problems\n"),
    };
    let problems = judged.iter().map(|judged| {
        let Comparison { values, near, wrong, first } = &judged.comparison;
        json!({"name": judged.name, "values": values, "near": near, "wrong": wrong, "first": first,
               "seconds": judged.took.as_secs_f64()})
    });
    let rule = if rule == Rule::Exact { "exact" } else { "band" };
    let json = json!({"target": what, "rule": rule, "different": wrong, "near": near,
                      "problems": problems.collect::<Vec<_>>()});
    args.report.write(&text, &json)?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// One line for each group.
fn summary(judged: &[Judged]) -> String {
    let mut groups: Vec<&str> = Vec::new();
    for judged in judged {
        if !groups.contains(&judged.group.as_str()) {
            groups.push(&judged.group);
        }
    }
    let rows = groups.iter().map(|group| {
        let members = || judged.iter().filter(|judged| judged.group == *group);
        let sum = |count: fn(&Comparison) -> usize| -> usize {
            members().map(|judged| count(&judged.comparison)).sum()
        };
        let took: Duration = members().map(|judged| judged.took).sum();
        vec![
            group.to_string(),
            members().count().to_string(),
            sum(|comparison| comparison.values).to_string(),
            sum(|comparison| comparison.near).to_string(),
            sum(|comparison| comparison.wrong).to_string(),
            format!("{:.2}", took.as_secs_f64()),
        ]
    });
    table(&["", "problems", "values", "near", "wrong", "seconds"], rows)
}
