//! `cargo xtask ci`: everything that must hold, stage by stage, with the seconds of each.
//!
//! A whole run takes lanes side by side: suites wait for other programs most of the time, and what is
//! built meanwhile needs nothing of them.

mod lanes;

use self::lanes::Lane;
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

/// The stage that installs what others wrote.
const TOOLS: &str = "tools";

type Check = dyn Fn(&House) -> Result<Tally, TaskError> + Sync;

struct Outcome {
    name: String,
    seconds: u64,
    result: Result<Tally, TaskError>,
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

/// One stage, whose last line is its count.
fn run_here(house: &House, name: &str) -> Result<(), TaskError> {
    let known = || stages().iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    let stage = stages().into_iter().find(|it| it.name == name).ok_or_else(|| {
        TaskError::Unknown { what: "stage", name: name.to_owned(), known: known() }
    })?;
    let tally = (stage.run)(house)?;
    process::say(&tally.to_string());
    Ok(())
}

/// Where whoever waits for it can read along.
fn one_by_one(house: &House, stages: Vec<Stage>) -> Vec<Outcome> {
    let watched = stages.into_iter().map(|stage| {
        process::say(&format!("\n=== {}", stage.name));
        let watch = Stopwatch::start();
        let result = (stage.run)(house);
        if let Err(error) = &result {
            process::complain(error);
        }
        Outcome { name: stage.name, seconds: watch.elapsed().as_secs(), result }
    });
    watched.collect()
}

fn stages() -> Vec<Stage> {
    let mut stages = vec![
        stage("test", test::run),
        // Whoever needs one of them waits for it, most often when all of them are there already.
        aside(one(TOOLS, tools::install_all)),
        stage("crash", test::crash),
        one("format", format),
        one("codegen", codegen::check),
        one("clippy", clippy),
        one("layers", |house| layers::check(house).map(drop)),
        one("tidy", |house| tidy::check(house).map(drop)),
        one("docs", docs),
        aside(stage("image", image::check)),
        aside(one("deny", deny::check)),
        late(stage("satellites", satellites::check)),
    ];
    stages.extend(Suite::ALL.map(|suite| {
        let stage = stage(&format!("conformance {}", suite.name()), move |house: &House| {
            conformance::run_suite(house, suite)
        });
        Stage { after: suite.needs_image().then_some("image").into_iter().collect(), ..stage }
    }));
    stages.push(stage("conformance --live stops", conformance::check_live_stops));
    stages.extend(fuzz::TARGETS.map(|target| {
        late(one(&format!("fuzz {target}"), move |house: &House| {
            fuzz::fuzz(house, target, fuzz::SMOKE_SECONDS)
        }))
    }));
    stages
}

/// A stage that builds in directories of its own.
fn aside(stage: Stage) -> Stage {
    Stage { lane: Lane::Aside, ..stage }
}

/// One that begins when the tools are there: until then two stages at a time keep the machine busy.
fn late(stage: Stage) -> Stage {
    Stage { lane: Lane::Late, after: vec![TOOLS], ..stage }
}

fn stage(name: &str, run: impl Fn(&House) -> Result<Tally, TaskError> + Sync + 'static) -> Stage {
    Stage { name: name.to_owned(), lane: Lane::Workspace, after: Vec::new(), run: Box::new(run) }
}

/// A stage that is one check.
fn one(name: &str, run: impl Fn(&House) -> Result<(), TaskError> + Sync + 'static) -> Stage {
    stage(name, move |house| run(house).map(|()| Tally::ONE))
}

fn wanted(stages: Vec<Stage>, only: &[String]) -> Result<Vec<Stage>, TaskError> {
    let names = stages.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(unknown) =
        only.iter().find(|prefix| !stages.iter().any(|it| it.name.starts_with(prefix.as_str())))
    {
        return Err(TaskError::Unknown { what: "stage", name: unknown.clone(), known: names });
    }
    let is_wanted =
        |name: &str| only.is_empty() || only.iter().any(|it| name.starts_with(it.as_str()));
    Ok(stages.into_iter().filter(|it| is_wanted(&it.name)).collect())
}

/// A line per stage, and the seconds that all of them together kept whoever waited.
fn summary(outcomes: &[Outcome], seconds: u64) -> Vec<String> {
    let mut total = Tally::default();
    let mut lines = vec![String::new(), "stage                        seconds  result".to_owned()];
    for outcome in outcomes {
        let verdict = if let Ok(tally) = &outcome.result {
            total += *tally;
            match tally.ignored {
                0 => format!("ok ({})", tally.passed),
                ignored => format!("ok ({}, {ignored} ignored)", tally.passed),
            }
        } else {
            total += Tally::FAILURE;
            "FAILED".to_owned()
        };
        lines.push(format!("{:<28} {:>7}  {verdict}", outcome.name, outcome.seconds));
    }
    lines.push(format!("{:<28} {seconds:>7}", "all stages"));
    lines.push(total.to_string());
    lines
}

fn format(house: &House) -> Result<(), TaskError> {
    process::run(house.cargo().args(["fmt", "--all", "--check"]))
}

fn clippy(house: &House) -> Result<(), TaskError> {
    let mut command = house.cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--all-features", "--locked"]);
    process::run(command.args(["--", "--deny", "warnings"]))
}

fn docs(house: &House) -> Result<(), TaskError> {
    let mut command = house.cargo();
    command.env("RUSTDOCFLAGS", "--deny warnings");
    process::run(command.args(["doc", "--workspace", "--no-deps", "--all-features", "--locked"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, result: Result<Tally, TaskError>) -> Outcome {
        Outcome { name: name.to_owned(), seconds: 2, result }
    }

    #[test]
    fn the_first_stage_is_the_test_command_of_the_readme() {
        assert_eq!(stages().first().map(|it| it.name.clone()), Some("test".to_owned()));
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
        assert_eq!(chosen.len(), Suite::ALL.len() + 1);
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
