//! `cargo xtask ci`: everything that must hold, stage by stage, with the seconds of each.

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

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only the stages whose names begin so
    #[arg(long, value_name = "STAGE")]
    only: Vec<String>,
}

struct Stage {
    name: String,
    run: Box<Check>,
}

type Check = dyn Fn(&House) -> Result<Tally, TaskError>;

struct Outcome {
    name: String,
    seconds: u64,
    result: Result<Tally, TaskError>,
}

/// Runs every stage, also after a failure: one run shows all that is wrong.
pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<(), TaskError> {
    let stages = wanted(stages(), &arguments.only)?;
    let total = stages.len();
    let mut outcomes = Vec::with_capacity(total);
    for (index, stage) in stages.into_iter().enumerate() {
        process::say(&format!("\n=== {}/{total} {}", index + 1, stage.name));
        let watch = Stopwatch::start();
        let result = (stage.run)(house);
        if let Err(error) = &result {
            process::complain(error);
        }
        outcomes.push(Outcome { name: stage.name, seconds: watch.elapsed().as_secs(), result });
    }
    for line in summary(&outcomes) {
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

fn stages() -> Vec<Stage> {
    let mut stages = vec![
        stage("test", test::run),
        stage("crash", test::crash),
        one("format", format),
        one("codegen", codegen::check),
        one("clippy", clippy),
        one("layers", |house| layers::check(house).map(drop)),
        one("tidy", |house| tidy::check(house).map(drop)),
        one("docs", docs),
        stage("image", image::check),
        one("deny", deny::check),
        stage("satellites", satellites::check),
    ];
    stages.extend(Suite::ALL.map(|suite| {
        stage(&format!("conformance {}", suite.name()), move |house: &House| {
            conformance::run_suite(house, suite)
        })
    }));
    stages.push(stage("conformance --live stops", conformance::check_live_stops));
    stages.extend(fuzz::TARGETS.map(|target| {
        one(&format!("fuzz {target}"), move |house: &House| {
            fuzz::fuzz(house, target, fuzz::SMOKE_SECONDS)
        })
    }));
    stages
}

fn stage(name: &str, run: impl Fn(&House) -> Result<Tally, TaskError> + 'static) -> Stage {
    Stage { name: name.to_owned(), run: Box::new(run) }
}

/// A stage that is one check.
fn one(name: &str, run: impl Fn(&House) -> Result<(), TaskError> + 'static) -> Stage {
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

fn summary(outcomes: &[Outcome]) -> Vec<String> {
    let mut total = Tally::default();
    let mut seconds = 0;
    let mut lines = vec![String::new(), "stage                        seconds  result".to_owned()];
    for outcome in outcomes {
        seconds += outcome.seconds;
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
        let lines = summary(&[
            outcome("test", Ok(Tally { passed: 40, ..Tally::default() })),
            outcome("tidy", Ok(Tally::ONE)),
            outcome("docs", Err(TaskError::Environment("HOME"))),
        ]);
        assert_eq!(lines.last().map(String::as_str), Some("41 passed, 1 failed"));
        assert!(lines.iter().any(|line| line.starts_with("docs") && line.ends_with("FAILED")));
    }

    #[test]
    fn stages_are_chosen_by_the_beginning_of_their_names() {
        let chosen = wanted(stages(), &["conformance".to_owned()]).expect("there are such stages");
        assert_eq!(chosen.len(), Suite::ALL.len() + 1);
        assert!(wanted(stages(), &["deploy".to_owned()]).is_err());
    }
}
