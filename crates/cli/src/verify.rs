use crate::{
    DIFFERENT,
    report::{Report, table},
    run::Device,
};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use mla_prologue_cases::{Comparison, Executor, Input, Result, Rule, Runnable, attend, prologue};
use mla_prologue_operator::Invalid;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

#[derive(Args)]
pub struct Verify {
    /// Files as `run` or `attend` takes them; without any, the built-in catalogue of problems of both
    #[arg(value_name = "IN")]
    pub inputs: Vec<PathBuf>,
    /// Judge this file, which somebody else made from IN, instead of running a device
    #[arg(long, value_name = "OUT", conflicts_with = "device")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub device: Device,
    #[command(flatten)]
    pub report: Report,
}

/// One problem's result.
struct Judged {
    name: String,
    /// What it is counted under in the table.
    group: String,
    comparison: Comparison,
    took: Duration,
}

/// Compares the fused kernel with the reference; or, with `--against`, a file with it.
pub fn verify(args: &Verify) -> Result<ExitCode> {
    let inputs = args.inputs.iter().map(|path| ("IN", path.as_path()));
    let against_file = args.against.as_deref().map(|path| ("--against", path));
    args.report.check(&inputs.chain(against_file).collect::<Vec<_>>(), &[])?;
    if let Some(output) = &args.against {
        let [input] = args.inputs.as_slice() else {
            let must = "one file, of which --against is the output";
            return Err(
                Invalid::new("IN", format_args!("{} files", args.inputs.len()), must).into()
            );
        };
        let (judged, rule) = match Input::read(input)? {
            Input::Prologue(call) => against(call, output)?,
            Input::Attend(call) => against(call, output)?,
        };
        let what = format!("{} as the output of {}", output.display(), input.display());
        return conclude(args, &what, rule, &[judged]);
    }
    // What is wrong with a file is found before a device is started.
    let files = args.inputs.iter().map(|path| Ok((path.display().to_string(), Input::read(path)?)));
    let files = files.collect::<Result<Vec<_>>>()?;
    let executor = args.device.open()?;
    let rule = executor.rule();
    let judged = if files.is_empty() {
        catalogue(&executor, rule)?
    } else {
        let judge = |(name, input): (String, Input)| match input {
            Input::Prologue(call) => judge(name.clone(), name, call, &executor, rule),
            Input::Attend(call) => judge(name.clone(), name, call, &executor, rule),
        };
        files.into_iter().map(judge).collect::<Result<Vec<_>>>()?
    };
    conclude(args, &executor.describe(), rule, &judged)
}

fn against<C: Runnable>(mut call: C, output: &Path) -> Result<(Judged, Rule)> {
    let got = call.read_output(output)?;
    let name = output.display().to_string();
    let start = Instant::now();
    Executor::Reference.run(&mut call)?;
    let rule = C::foreign_rule();
    let comparison = call.compare(&got, rule);
    Ok((Judged { group: name.clone(), name, comparison, took: start.elapsed() }, rule))
}

fn catalogue(executor: &Executor, rule: Rule) -> Result<Vec<Judged>> {
    use prologue::catalogue as prologues;
    let base = prologues::matrix().into_iter().map(|case| (case, false));
    let prologues: Vec<_> =
        base.chain(prologues::modes().into_iter().map(|case| (case, true))).collect();
    let mut attends = attend::catalogue::modes();
    if let Some(why) = executor.refuses_attention() {
        eprintln!("{} problems of attention left out: {why}", attends.len());
        attends.clear();
    }
    let bar = ProgressBar::new((prologues.len() + attends.len()) as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} problems, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut judged = Vec::new();
    for (case, mode) in &prologues {
        let heads = case.spec.query.map_or(0, |query| query.heads);
        let group = if *mode { "modes".into() } else { format!("{heads} heads") };
        judged.push(judge(case.to_string(), group, case.call()?, executor, rule)?);
        bar.inc(1);
    }
    for case in &attends {
        judged.push(judge(case.to_string(), "attend".into(), case.call()?, executor, rule)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(judged)
}

fn judge<C: Runnable>(
    name: String,
    group: String,
    mut call: C,
    executor: &Executor,
    rule: Rule,
) -> Result<Judged> {
    let start = Instant::now();
    let got = executor.result(&call)?;
    let took = start.elapsed();
    Executor::Reference.run(&mut call)?;
    Ok(Judged { name, group, comparison: call.compare(&got, rule), took })
}

/// Writes the report; returns the exit code.
fn conclude(args: &Verify, what: &str, rule: Rule, judged: &[Judged]) -> Result<ExitCode> {
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
            format!("equal bit for bit to the reference: {total} of {total} problems\n")
        }
        (0, Rule::Band, 0) => format!(
            "equal bit for bit to the reference: {total} of {total} problems (promised here: within band)\n"
        ),
        (0, Rule::Band, _) => format!(
            "within band of the reference: {total} of {total} problems, {near} values one unit in the last place off\n"
        ),
        (0, Rule::Bound, _) => {
            let worst = judged.iter().map(|judged| judged.comparison.worst).fold(0.0, f64::max);
            format!(
                "within the bound: {total} of {total} problems, the worst error {worst:.3} of it\n"
            )
        }
        _ => format!("DIFFERENT from the reference: {wrong} of {total} problems\n"),
    };
    let problems = judged.iter().map(|judged| {
        let Comparison { values, near, wrong, first, worst } = &judged.comparison;
        json!({"name": judged.name, "values": values, "near": near, "wrong": wrong, "first": first, "worst": worst,
               "seconds": judged.took.as_secs_f64()})
    });
    let rule = match rule {
        Rule::Exact => "exact",
        Rule::Band => "band",
        Rule::Bound => "bound",
    };
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
