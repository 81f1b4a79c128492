//! `cargo xtask ci`: everything that must hold, stage by stage, with the seconds of each.
//!
//! A whole run takes lanes side by side: suites wait for other programs most of the time, and what is
//! built meanwhile needs nothing of them.

mod lanes;
mod processor_time;

use std::time::Duration;

use self::lanes::Lane;
use self::processor_time::ProcessorTime;
use crate::codegen;
use crate::conformance::{self, Suite};
use crate::deny;
use crate::failure::TaskError;
use crate::fuzz;
use crate::house::House;
use crate::image;
use crate::layers;
use crate::process::{self, Stopwatch, Tally};
use crate::satellites;
use crate::test;
use crate::tidy;
use crate::tools;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only the stages whose names begin so
    #[arg(long, value_name = "STAGE")]
    only: Vec<String>,
    /// Run one stage here and close with its count, for the lanes of a whole run
    #[arg(long, value_name = "STAGE", hide = true, conflicts_with = "only")]
    stage: Option<String>,
}

struct Stage {
    name: String,
    lane: Lane,
    /// The stages that this one waits for, where they run at all.
    after: Vec<&'static str>,
    run: Box<Check>,
}

/// The stage that builds the programs of the suites. It runs wherever a suite does.
const PROGRAMS: &str = "programs";

/// The stage that builds the fuzz targets. It runs wherever one of them does.
const FUZZ_BUILD: &str = "fuzz build";

type Check = dyn Fn(&House) -> Result<Tally, TaskError> + Sync;

struct Outcome {
    name: String,
    seconds: u64,
    /// The processor time of the stage and of the processes that it waited for, where it is known.
    processor: Option<Duration>,
    result: Result<Tally, TaskError>,
}

impl Outcome {
    /// The outcome of a stage that needs one that failed.
    fn not_run(name: &str, failed: &str) -> Self {
        let findings = vec![format!("{failed} failed")];
        let result = Err(TaskError::Findings {
            check: "stages that had to succeed before this one",
            findings,
        });
        Self { name: name.to_owned(), seconds: 0, processor: None, result }
    }
}

/// Runs every stage, also after a failure: one run shows all that is wrong.
pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<(), TaskError> {
    if let Some(name) = &arguments.stage {
        return run_here(house, name);
    }
    let stages = wanted(stages(), &arguments.only)?;
    let total = stages.len();
    let watch = Stopwatch::start();
    let outcomes = if total == 1 { one_by_one(house, stages) } else { lanes::run(house, &stages)? };
    for line in summary(&outcomes, watch.elapsed().as_secs()) {
        process::say(&line);
    }
    let failed: Vec<&str> =
        outcomes.iter().filter(|it| it.result.is_err()).map(|it| it.name.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(TaskError::Several {
        what: "stages",
        failed: failed.len(),
        total,
        names: failed.join(", "),
    })
}

/// One stage. Its last lines are its processor time and its count.
fn run_here(house: &House, name: &str) -> Result<(), TaskError> {
    let known = || stages().iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    let stage = stages().into_iter().find(|it| it.name == name).ok_or_else(|| {
        TaskError::Unknown { what: "stage", name: name.to_owned(), known: known() }
    })?;
    let result = (stage.run)(house);
    if let Some(processor) = ProcessorTime::used() {
        process::say(&processor.to_string());
    }
    process::say(&result?.to_string());
    Ok(())
}

/// Runs the stages where the caller can read along.
fn one_by_one(house: &House, stages: Vec<Stage>) -> Vec<Outcome> {
    let watched = stages.into_iter().map(|stage| {
        process::say(&format!("\n=== {}", stage.name));
        let (watch, before) = (Stopwatch::start(), ProcessorTime::used());
        let result = (stage.run)(house).and_then(nothing_ignored);
        if let Err(error) = &result {
            process::complain(error);
        }
        let processor = ProcessorTime::used().zip(before).map(|(now, before)| now.since(before));
        Outcome { name: stage.name, seconds: watch.elapsed().as_secs(), processor, result }
    });
    watched.collect()
}

/// Fails a stage that left something out: here everything has to run.
fn nothing_ignored(tally: Tally) -> Result<Tally, TaskError> {
    if tally.ignored == 0 {
        return Ok(tally);
    }
    let hint = "each has a line `... ignored` above; those that mount file systems need root";
    Err(TaskError::Findings {
        check: "tests that did not run",
        findings: vec![format!("{tally}"), hint.to_owned()],
    })
}

/// Every stage, each lane in its order.
fn stages() -> Vec<Stage> {
    let mut stages = vec![
        one("format", format),
        one("layers", |house| layers::check(house).map(drop)),
        one("tidy", |house| tidy::check(house).map(drop)),
        one("codegen", codegen::check),
        one(PROGRAMS, workspace::build_programs),
        stage("test", test::run),
        one("clippy", clippy),
        one(FUZZ_BUILD, fuzz::build),
        one("docs", docs),
        // A suite that needs one of them sooner installs it, or waits until it is there.
        aside(one("tools", tools::install_all)),
        Stage { after: vec![PROGRAMS], ..aside(stage("image", image::check)) },
        aside(one("deny", deny::check)),
        aside(stage("satellites", satellites::check)),
    ];
    stages.extend(Suite::ALL.map(|suite| {
        let name = format!("conformance {}", suite.name());
        let run = move |house: &House| conformance::run_suite(house, suite);
        let image = suite.needs_image().then_some("image");
        let after = [PROGRAMS].into_iter().chain(image).collect();
        let lane = if suite.needs_node() { Lane::Nodes } else { Lane::Suites };
        Stage { lane, after, ..stage(&name, run) }
    }));
    let live = stage("conformance --live stops", conformance::check_live_stops);
    stages.push(Stage { lane: Lane::Suites, after: vec![PROGRAMS], ..live });
    stages.extend(fuzz::TARGETS.map(|target| {
        let run = move |house: &House| fuzz::fuzz(house, target, fuzz::SMOKE_SECONDS);
        let target = one(&format!("fuzz {target}"), run);
        Stage { after: vec![FUZZ_BUILD], ..aside(target) }
    }));
    stages
}

/// A stage that builds in directories of its own.
fn aside(stage: Stage) -> Stage {
    Stage { lane: Lane::Aside, ..stage }
}

fn stage(name: &str, run: impl Fn(&House) -> Result<Tally, TaskError> + Sync + 'static) -> Stage {
    Stage { name: name.to_owned(), lane: Lane::Workspace, after: Vec::new(), run: Box::new(run) }
}

/// A stage that is one check.
fn one(name: &str, run: impl Fn(&House) -> Result<(), TaskError> + Sync + 'static) -> Stage {
    stage(name, move |house| run(house).map(|()| Tally::ONE))
}

/// The stages whose names begin so, and those that build for them.
fn wanted(stages: Vec<Stage>, only: &[String]) -> Result<Vec<Stage>, TaskError> {
    let names = stages.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(unknown) =
        only.iter().find(|prefix| !stages.iter().any(|it| it.name.starts_with(prefix.as_str())))
    {
        return Err(TaskError::Unknown { what: "stage", name: unknown.clone(), known: names });
    }
    let is_named =
        |name: &str| only.is_empty() || only.iter().any(|it| name.starts_with(it.as_str()));
    let builds = stages.iter().filter(|it| is_named(&it.name)).flat_map(|it| it.after.clone());
    let builds: Vec<_> = builds.filter(|it| [PROGRAMS, FUZZ_BUILD].contains(it)).collect();
    let is_wanted = |stage: &Stage| is_named(&stage.name) || builds.contains(&stage.name.as_str());
    Ok(stages.into_iter().filter(is_wanted).collect())
}

/// A line per stage, with its seconds and those of processors, and the same of all stages together.
fn summary(outcomes: &[Outcome], seconds: u64) -> Vec<String> {
    let mut total = Tally::default();
    let mut processor = Duration::ZERO;
    let mut lines =
        vec![String::new(), "stage                        seconds  processor  result".to_owned()];
    for outcome in outcomes {
        let verdict = if let Ok(tally) = &outcome.result {
            total += *tally;
            format!("ok ({})", tally.passed)
        } else {
            total += Tally::FAILURE;
            "FAILED".to_owned()
        };
        processor += outcome.processor.unwrap_or_default();
        let used = outcome.processor.map_or_else(|| "?".to_owned(), |it| it.as_secs().to_string());
        let Outcome { name, seconds, .. } = outcome;
        lines.push(format!("{name:<28} {seconds:>7}  {used:>9}  {verdict}"));
    }
    let processor = processor.as_secs();
    lines.push(format!("{:<28} {seconds:>7}  {processor:>9}", "all stages"));
    lines.push(total.to_string());
    lines
}

pub(crate) fn format(house: &House) -> Result<(), TaskError> {
    process::run(house.cargo().args(["fmt", "--all", "--check"]))
}

pub(crate) fn clippy(house: &House) -> Result<(), TaskError> {
    let mut command = house.cargo();
    command.arg("clippy").args(workspace::WHOLE).arg("--all-targets");
    process::run(command.args(["--", "--deny", "warnings"]))
}

fn docs(house: &House) -> Result<(), TaskError> {
    let mut command = house.cargo();
    command.env("RUSTDOCFLAGS", "--deny warnings");
    process::run(command.arg("doc").args(workspace::WHOLE).arg("--no-deps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, result: Result<Tally, TaskError>) -> Outcome {
        Outcome { name: name.to_owned(), seconds: 2, processor: None, result }
    }

    #[test]
    fn a_test_that_is_ignored_fails_its_stage() {
        assert!(nothing_ignored(Tally::ONE).is_ok());
        let error = nothing_ignored(Tally { ignored: 2, ..Tally::ONE }).expect_err("two are");
        assert!(error.to_string().contains("1 passed, 0 failed, 2 ignored"), "{error}");
    }

    #[test]
    fn the_last_line_counts_checks_and_failures() {
        let outcomes = [
            outcome("test", Ok(Tally { passed: 40, ..Tally::default() })),
            outcome("tidy", Ok(Tally::ONE)),
            outcome("docs", Err(TaskError::Environment("HOME"))),
        ];
        let lines = summary(&outcomes, 4);
        assert_eq!(lines.last().map(String::as_str), Some("41 passed, 1 failed"));
        assert!(lines.iter().any(|line| line.starts_with("docs") && line.ends_with("FAILED")));
    }

    #[test]
    fn stages_are_chosen_by_the_beginning_of_their_names() {
        let chosen = wanted(stages(), &["conformance".to_owned()]).expect("there are such stages");
        // And the build of the programs.
        assert_eq!(chosen.len(), Suite::ALL.len() + 2);
        assert!(chosen.iter().any(|it| it.name == PROGRAMS));
        assert!(wanted(stages(), &["deploy".to_owned()]).is_err());
    }

    #[test]
    fn what_a_stage_takes_comes_from_a_stage() {
        let names: Vec<_> = stages().into_iter().map(|it| it.name).collect();
        for stage in stages() {
            let found = stage.after.iter().all(|after| names.iter().any(|name| name == after));
            assert!(found, "{} waits for {:?}", stage.name, stage.after);
        }
    }
}
