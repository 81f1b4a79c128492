//! `cargo xtask ci`: runs every check that must pass before a merge, stage by stage, and prints the seconds
//! of each stage.
//!
//! A full run executes groups of stages in parallel: suites mostly wait for other programs, and the builds
//! that run meanwhile do not depend on them.

mod failed_lines;
mod job_groups;
mod processor_time;

use std::time::Duration;

use clap::ValueEnum;
use lanyard_suite_names::SuiteName;

use self::job_groups::JobGroup;
use self::processor_time::ProcessorTime;
use crate::auxiliary_workspaces;
use crate::book;
use crate::codegen;
use crate::conformance;
use crate::deny;
use crate::fuzz;
use crate::image;
use crate::layers;
use crate::pipelines;
use crate::process::{self, PassFailCounts, Stopwatch};
use crate::prose;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::test;
use crate::tidy;
use crate::tools;
use crate::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only the stages whose names start with this prefix
    #[arg(long, value_name = "STAGE")]
    only: Vec<String>,
    /// Run one stage in this process and print its counts at the end; a full run starts its stages with this
    /// flag
    #[arg(long, value_name = "STAGE", hide = true, conflicts_with = "only")]
    stage: Option<String>,
}

struct CiStage {
    name: String,
    group: JobGroup,
    /// The stages that this one waits for, if they are part of the run.
    depends_on: Vec<&'static str>,
    run: Box<CiStageFn>,
}

/// The stage that builds the programs of the suites. It runs whenever a suite runs.
const PROGRAMS: &str = "programs";

/// The stage that builds the fuzz targets. It runs whenever a fuzz target runs.
const FUZZ_BUILD: &str = "fuzz build";

type CiStageFn = dyn Fn(&Repository) -> Result<PassFailCounts, TaskError> + Sync;

struct StageOutcome {
    name: String,
    seconds: u64,
    /// The processor time of the stage and of its child processes, if it is known.
    processor_time: Option<Duration>,
    result: Result<PassFailCounts, TaskError>,
    /// The lines of the stage's output that say what failed. Empty if the stage passed, did not run, or wrote to
    /// the terminal.
    failed_lines: Vec<String>,
}

impl StageOutcome {
    /// The outcome of a stage whose dependency failed.
    fn skipped(name: &str, failed: &str) -> Self {
        let findings = vec![format!("{failed} failed")];
        let result = Err(TaskError::Findings {
            check: "stages that had to succeed before this one",
            findings,
        });
        Self {
            name: name.to_owned(),
            seconds: 0,
            processor_time: None,
            result,
            failed_lines: Vec::new(),
        }
    }
}

/// Runs every stage, also after a failure, so that one run shows all problems.
pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<(), TaskError> {
    if let Some(name) = &arguments.stage {
        return run_single_stage(repository, name);
    }
    let stages = selected_stages(all_stages(), &arguments.only)?;
    let total = stages.len();
    let watch = Stopwatch::start();
    let outcomes = if total == 1 {
        run_sequentially(repository, stages)
    } else {
        job_groups::run_in_parallel(repository, &stages)?
    };
    // The output of a single stage is directly above.
    let failures = if total == 1 { Vec::new() } else { repeated_failures(&outcomes) };
    for line in failures.into_iter().chain(summary_lines(&outcomes, watch.elapsed().as_secs())) {
        process::print_line(&line);
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

/// Runs one stage. Its last lines are its processor time and its counts.
fn run_single_stage(repository: &Repository, name: &str) -> Result<(), TaskError> {
    let known = || all_stages().iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    let stage = all_stages().into_iter().find(|it| it.name == name).ok_or_else(|| {
        TaskError::Unknown { what: "stage", name: name.to_owned(), known: known() }
    })?;
    let result = (stage.run)(repository);
    if let Some(processor) = ProcessorTime::measure() {
        process::print_line(&processor.to_string());
    }
    process::print_line(&result?.to_string());
    Ok(())
}

/// Runs the stages with their output on the terminal.
fn run_sequentially(repository: &Repository, stages: Vec<CiStage>) -> Vec<StageOutcome> {
    let watched = stages.into_iter().map(|stage| {
        process::print_line(&format!("\n=== {}", stage.name));
        let (watch, before) = (Stopwatch::start(), ProcessorTime::measure());
        let result = (stage.run)(repository).and_then(fail_on_ignored);
        if let Err(error) = &result {
            process::print_error(error);
        }
        let processor = ProcessorTime::measure().zip(before).map(|(now, before)| now.since(before));
        StageOutcome {
            name: stage.name,
            seconds: watch.elapsed().as_secs(),
            processor_time: processor,
            result,
            failed_lines: Vec::new(),
        }
    });
    watched.collect()
}

/// Fails a stage with ignored tests: in CI, every test must run.
fn fail_on_ignored(tally: PassFailCounts) -> Result<PassFailCounts, TaskError> {
    if tally.ignored == 0 {
        return Ok(tally);
    }
    let hint = "each has a line `... ignored` above; those that mount file systems need root";
    Err(TaskError::Findings {
        check: "tests that did not run",
        findings: vec![format!("{tally}"), hint.to_owned()],
    })
}

/// All stages; each group runs its stages in this order.
fn all_stages() -> Vec<CiStage> {
    let mut stages = vec![
        single_check_stage("format", format),
        single_check_stage("layers", |repository| layers::check(repository).map(drop)),
        single_check_stage("tidy", |repository| tidy::check(repository).map(drop)),
        single_check_stage("codegen", codegen::check),
        single_check_stage(PROGRAMS, workspace::build_programs),
        counted_stage("test", test::run),
        // Fuzz targets run beside the stages that follow.
        single_check_stage(FUZZ_BUILD, fuzz::build_targets),
        single_check_stage("clippy", clippy),
        single_check_stage("docs", docs),
        // Suites with a node need nearly all tools, and the other suites many: these wait for an installation.
        CiStage { group: JobGroup::NodeSuites, ..single_check_stage("tools", tools::install_all) },
        CiStage {
            depends_on: vec![PROGRAMS],
            ..with_separate_build(counted_stage("image", image::check))
        },
        with_separate_build(single_check_stage("deny", deny::check)),
        with_separate_build(single_check_stage("book", book::build)),
        with_separate_build(single_check_stage("prose", prose::check)),
        with_separate_build(counted_stage("pipelines", pipelines::check)),
        with_separate_build(counted_stage("auxiliary", auxiliary_workspaces::check)),
    ];
    stages.extend(SuiteName::value_variants().iter().map(|&suite| {
        let name = format!("conformance {}", suite.name());
        let run = move |repository: &Repository| conformance::run_suite(repository, suite);
        let image = conformance::needs_image(suite).then_some("image");
        let after = [PROGRAMS].into_iter().chain(image).collect();
        let group =
            if conformance::needs_node(suite) { JobGroup::NodeSuites } else { JobGroup::Suites };
        CiStage { group, depends_on: after, ..counted_stage(&name, run) }
    }));
    let live =
        counted_stage("conformance --live stops", conformance::check_live_requires_credentials);
    stages.push(CiStage { group: JobGroup::Suites, depends_on: vec![PROGRAMS], ..live });
    stages.extend(fuzz::TARGETS.map(|target| {
        let run = move |repository: &Repository| {
            fuzz::run_target(repository, target, fuzz::SMOKE_SECONDS)
        };
        let target = single_check_stage(&format!("fuzz {target}"), run);
        CiStage { group: JobGroup::FuzzTargets, depends_on: vec![FUZZ_BUILD], ..target }
    }));
    stages
}

/// A stage that builds in a separate target directory.
fn with_separate_build(stage: CiStage) -> CiStage {
    CiStage { group: JobGroup::SeparateBuild, ..stage }
}

fn counted_stage(
    name: &str,
    run: impl Fn(&Repository) -> Result<PassFailCounts, TaskError> + Sync + 'static,
) -> CiStage {
    CiStage {
        name: name.to_owned(),
        group: JobGroup::Workspace,
        depends_on: Vec::new(),
        run: Box::new(run),
    }
}

/// A stage that consists of one check.
fn single_check_stage(
    name: &str,
    run: impl Fn(&Repository) -> Result<(), TaskError> + Sync + 'static,
) -> CiStage {
    counted_stage(name, move |repository| run(repository).map(|()| PassFailCounts::ONE_PASSED))
}

/// The stages whose names start with one of the prefixes, and the stages that they depend on.
fn selected_stages(stages: Vec<CiStage>, only: &[String]) -> Result<Vec<CiStage>, TaskError> {
    let names = stages.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(unknown) =
        only.iter().find(|prefix| !stages.iter().any(|it| it.name.starts_with(prefix.as_str())))
    {
        return Err(TaskError::Unknown { what: "stage", name: unknown.clone(), known: names });
    }
    let is_named =
        |name: &str| only.is_empty() || only.iter().any(|it| name.starts_with(it.as_str()));
    let builds = stages.iter().filter(|it| is_named(&it.name)).flat_map(|it| it.depends_on.clone());
    let builds: Vec<_> = builds.filter(|it| [PROGRAMS, FUZZ_BUILD].contains(it)).collect();
    let is_wanted =
        |stage: &CiStage| is_named(&stage.name) || builds.contains(&stage.name.as_str());
    Ok(stages.into_iter().filter(is_wanted).collect())
}

/// Formats the failed lines and the error of each failed stage.
fn repeated_failures(outcomes: &[StageOutcome]) -> Vec<String> {
    let mut lines = Vec::new();
    for StageOutcome { name, result, failed_lines, .. } in outcomes {
        if let Err(error) = result {
            lines.push(format!("\n=== {name} FAILED"));
            lines.extend_from_slice(failed_lines);
            lines.push(process::error_text(error));
        }
    }
    lines
}

/// Formats a line per stage with its seconds and processor time, and a line with the totals.
fn summary_lines(outcomes: &[StageOutcome], seconds: u64) -> Vec<String> {
    let mut total = PassFailCounts::default();
    let mut processor = Duration::ZERO;
    let mut lines =
        vec![String::new(), "stage                        seconds  processor  result".to_owned()];
    for outcome in outcomes {
        let verdict = if let Ok(tally) = &outcome.result {
            total += *tally;
            format!("ok ({})", tally.passed)
        } else {
            total += PassFailCounts::ONE_FAILED;
            "FAILED".to_owned()
        };
        processor += outcome.processor_time.unwrap_or_default();
        let used =
            outcome.processor_time.map_or_else(|| "?".to_owned(), |it| it.as_secs().to_string());
        let StageOutcome { name, seconds, .. } = outcome;
        lines.push(format!("{name:<28} {seconds:>7}  {used:>9}  {verdict}"));
    }
    let processor = processor.as_secs();
    lines.push(format!("{:<28} {seconds:>7}  {processor:>9}", "all stages"));
    lines.push(total.to_string());
    lines
}

pub(crate) fn format(repository: &Repository) -> Result<(), TaskError> {
    process::run(repository.cargo().args(["fmt", "--all", "--check"]))
}

pub(crate) fn clippy(repository: &Repository) -> Result<(), TaskError> {
    let mut command = repository.cargo();
    command.arg("clippy").args(workspace::ALL_PACKAGES).arg("--all-targets");
    process::run(command.args(["--", "--deny", "warnings"]))
}

fn docs(repository: &Repository) -> Result<(), TaskError> {
    let mut command = repository.cargo();
    command.env("RUSTDOCFLAGS", "--deny warnings");
    process::run(command.arg("doc").args(workspace::ALL_PACKAGES).arg("--no-deps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_outcome(name: &str, result: Result<PassFailCounts, TaskError>) -> StageOutcome {
        let failed_lines = vec![format!("the output of {name}")];
        StageOutcome {
            name: name.to_owned(),
            seconds: 2,
            processor_time: None,
            result,
            failed_lines,
        }
    }

    #[test]
    fn ignored_test_fails_its_stage() {
        assert!(fail_on_ignored(PassFailCounts::ONE_PASSED).is_ok());
        let error = fail_on_ignored(PassFailCounts { ignored: 2, ..PassFailCounts::ONE_PASSED })
            .expect_err("two are");
        assert!(error.to_string().contains("1 passed, 0 failed, 2 ignored"), "{error}");
    }

    #[test]
    fn last_summary_line_counts_checks_and_failures() {
        let outcomes = [
            test_outcome("test", Ok(PassFailCounts { passed: 40, ..PassFailCounts::default() })),
            test_outcome("tidy", Ok(PassFailCounts::ONE_PASSED)),
            test_outcome("docs", Err(TaskError::Environment("HOME"))),
        ];
        let lines = summary_lines(&outcomes, 4);
        assert_eq!(lines.last().map(String::as_str), Some("41 passed, 1 failed"));
        assert!(lines.iter().any(|line| line.starts_with("docs ") && line.ends_with("FAILED")));
    }

    #[test]
    fn output_and_error_of_failed_stages_are_repeated() {
        let outcomes = [
            test_outcome("tidy", Ok(PassFailCounts::ONE_PASSED)),
            test_outcome("docs", Err(TaskError::Environment("HOME"))),
            StageOutcome::skipped("node", "image"),
        ];
        let text = repeated_failures(&outcomes).join("\n");
        let docs = "\n=== docs FAILED\nthe output of docs\nerror: HOME is not set";
        assert!(text.starts_with(docs), "{text}");
        assert!(text.contains("\n=== node FAILED\nerror: stages that had to succeed"), "{text}");
        assert!(text.ends_with("image failed") && !text.contains("tidy"), "{text}");
    }

    #[test]
    fn stages_are_selected_by_name_prefix() {
        let chosen = selected_stages(all_stages(), &["conformance".to_owned()])
            .expect("there are such stages");
        // The suites, the live check and the build of the programs.
        assert_eq!(chosen.len(), SuiteName::value_variants().len() + 2);
        assert!(chosen.iter().any(|it| it.name == PROGRAMS));
        assert!(selected_stages(all_stages(), &["deploy".to_owned()]).is_err());
    }

    #[test]
    fn every_stage_dependency_exists() {
        let names: Vec<_> = all_stages().into_iter().map(|it| it.name).collect();
        for stage in all_stages() {
            let found = stage.depends_on.iter().all(|after| names.iter().any(|name| name == after));
            assert!(found, "{} waits for {:?}", stage.name, stage.depends_on);
        }
    }
}
