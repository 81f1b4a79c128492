//! Runs groups of stages in parallel. Each stage is a process whose output is printed as one block.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::failed_lines::failed_lines;
use super::processor_time::ProcessorTime;
use super::{CiStage, StageOutcome};
use crate::process::{self, PassFailCounts, Stopwatch};
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The group of a stage. The stages of a group run one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobGroup {
    /// Stages that build in the workspace's target directory, where cargo allows one build at a time.
    Workspace,
    /// Stages that build elsewhere, and stages that no other stage waits for.
    SeparateBuild,
    /// Suites without a node. They run programs that are already built.
    Suites,
    /// Fuzz targets. Each uses one processor for a fixed time.
    FuzzTargets,
    /// Suites with a node, of which only one can run at a time, and the installation of their tools.
    NodeSuites,
}

impl JobGroup {
    const ALL: [Self; 5] =
        [Self::Workspace, Self::SeparateBuild, Self::Suites, Self::FuzzTargets, Self::NodeSuites];

    /// The niceness of the stages. Suites mostly wait for other programs and have deadlines, so they run with
    /// normal priority.
    const fn niceness(self) -> Option<&'static str> {
        match self {
            Self::Suites | Self::NodeSuites => None,
            Self::Workspace => Some("5"),
            Self::SeparateBuild | Self::FuzzTargets => Some("10"),
        }
    }
}

/// Runs all stages and returns their outcomes in the order of `stages`.
pub(super) fn run_in_parallel(
    repository: &Repository,
    stages: &[CiStage],
) -> Result<Vec<StageOutcome>, TaskError> {
    let runner = StageRunner::prepare(repository)?;
    process::print_line(&format!("running stages write to {}", runner.logs.display()));
    let schedule = Mutex::new(StageSchedule::new(stages));
    let ended = Condvar::new();
    let outcomes = Mutex::new(Vec::with_capacity(stages.len()));
    let run_group = &|group: JobGroup| {
        while let Some((index, failed_dependency)) = wait_for_next_stage(&schedule, &ended, group) {
            let stage = &stages[index];
            // A panic here must fail the stage, because otherwise the other groups would wait for it forever.
            let mut ending =
                StageEndGuard { schedule: &schedule, ended: &ended, index, failed: true };
            let outcome = match failed_dependency {
                Some(failed) => StageOutcome::skipped(&stage.name, &stages[failed].name),
                None => runner.run(stage, group),
            };
            ending.failed = outcome.result.is_err();
            // Prints the output of one stage at a time.
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            runner.print_outcome(
                &outcome,
                failed_dependency.is_none(),
                outcomes.len() + 1,
                stages.len(),
            );
            outcomes.push((index, outcome));
        }
    };
    thread::scope(|scope| {
        for group in JobGroup::ALL {
            scope.spawn(move || run_group(group));
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(index, _)| *index);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Records the end of a stage when it is dropped.
struct StageEndGuard<'a> {
    schedule: &'a Mutex<StageSchedule>,
    ended: &'a Condvar,
    index: usize,
    failed: bool,
}

impl Drop for StageEndGuard<'_> {
    fn drop(&mut self) {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.finish_stage(self.index, self.failed);
        self.ended.notify_all();
    }
}

/// Waits for the next stage of a group. Returns the stage, and its failed dependency if there is one.
fn wait_for_next_stage(
    schedule: &Mutex<StageSchedule>,
    ended: &Condvar,
    group: JobGroup,
) -> Option<(usize, Option<usize>)> {
    let mut schedule = schedule.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match schedule.next_stage(group) {
            NextStage::Run(index) => return Some((index, None)),
            NextStage::DependencyFailed { stage, failed } => return Some((stage, Some(failed))),
            NextStage::Wait => {
                schedule = ended.wait(schedule).unwrap_or_else(PoisonError::into_inner);
            }
            NextStage::Finished => return None,
        }
    }
}

/// The next action of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStage {
    Run(usize),
    /// A stage that cannot run, because its dependency failed.
    DependencyFailed {
        stage: usize,
        failed: usize,
    },
    /// All remaining stages of the group wait for other groups.
    Wait,
    Finished,
}

/// The waiting stages and their dependencies.
#[derive(Debug)]
struct StageSchedule {
    /// Sorted by stage.
    waiting: Vec<(usize, JobGroup, Vec<usize>)>,
    ended: BTreeSet<usize>,
    failed: BTreeSet<usize>,
}

impl StageSchedule {
    /// A stage waits only for dependencies that are part of the run.
    fn new(stages: &[CiStage]) -> Self {
        let place = |name: &str| stages.iter().position(|it| it.name == name);
        let waiting = stages
            .iter()
            .enumerate()
            .map(|(index, stage)| {
                let after = stage.depends_on.iter().filter_map(|name| place(name)).collect();
                (index, stage.group, after)
            })
            .collect();
        Self { waiting, ended: BTreeSet::new(), failed: BTreeSet::new() }
    }

    fn next_stage(&mut self, group: JobGroup) -> NextStage {
        let mine = |(_, of, _): &(usize, JobGroup, Vec<usize>)| *of == group;
        let ready = self.waiting.iter().position(|entry| {
            mine(entry) && entry.2.iter().all(|needed| self.ended.contains(needed))
        });
        match ready {
            Some(place) => {
                let (stage, _, needed) = self.waiting.remove(place);
                match needed.into_iter().find(|needed| self.failed.contains(needed)) {
                    Some(failed) => NextStage::DependencyFailed { stage, failed },
                    None => NextStage::Run(stage),
                }
            }
            None if self.waiting.iter().any(mine) => NextStage::Wait,
            None => NextStage::Finished,
        }
    }

    fn finish_stage(&mut self, index: usize, failed: bool) {
        self.ended.insert(index);
        if failed {
            self.failed.insert(index);
        }
    }
}

/// Starts stages as processes.
#[derive(Debug)]
struct StageRunner {
    /// A copy of this program, because stages rebuild the original.
    program: PathBuf,
    logs: PathBuf,
    uses_nice: bool,
    /// Started before the first stage.
    watch: Stopwatch,
}

impl StageRunner {
    fn prepare(repository: &Repository) -> Result<Self, TaskError> {
        let logs = repository.target_directory().join("ci");
        let file = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| TaskError::File { action, path, source }
        };
        fs::create_dir_all(&logs).map_err(file("create", &logs))?;
        let own = std::env::current_exe().map_err(file("find", Path::new("xtask")))?;
        // The name is unique, because another run may use its own copy.
        let program = logs.join(format!("xtask-{}", std::process::id()));
        fs::copy(&own, &program).map_err(file("copy", &own))?;
        let uses_nice = repository.has_program("nice");
        Ok(Self { program, logs, uses_nice, watch: Stopwatch::start() })
    }

    fn run(&self, stage: &CiStage, group: JobGroup) -> StageOutcome {
        process::print_line(&format!("{:>5} s ... {}", self.watch.elapsed().as_secs(), stage.name));
        let watch = Stopwatch::start();
        let result = self.run_process(stage, group).and_then(super::fail_on_ignored);
        let (name, seconds) = (stage.name.clone(), watch.elapsed().as_secs());
        let log = self.read_log(&stage.name);
        let processor = log.lines().rev().find_map(ProcessorTime::parse);
        let failed_lines = if result.is_err() { failed_lines(&log) } else { Vec::new() };
        StageOutcome { name, seconds, processor_time: processor, result, failed_lines }
    }

    fn run_process(&self, stage: &CiStage, group: JobGroup) -> Result<PassFailCounts, TaskError> {
        let path = self.log_path(&stage.name);
        let file = |action| {
            let path = path.clone();
            move |source| TaskError::File { action, path, source }
        };
        let log = File::create(&path).map_err(file("create"))?;
        let mut command = self.command(group);
        command.args(["ci", "--stage", &stage.name]);
        command.stderr(log.try_clone().map_err(file("share"))?).stdout(log);
        process::run(&mut command)?;
        let text = self.read_log(&stage.name);
        let count = text.lines().next_back().and_then(PassFailCounts::parse);
        count.ok_or_else(|| process::command_failed(&command, "no count in its last line"))
    }

    fn command(&self, group: JobGroup) -> Command {
        let Some(niceness) = group.niceness().filter(|_| self.uses_nice) else {
            return Command::new(&self.program);
        };
        let mut command = Command::new("nice");
        command.args(["-n", niceness]).arg(&self.program);
        command
    }

    fn print_outcome(&self, outcome: &StageOutcome, has_run: bool, number: usize, total: usize) {
        process::print_line(&format!("\n=== {number}/{total} {}", outcome.name));
        if has_run {
            process::print_line(self.read_log(&outcome.name).trim_end());
        }
        if let Err(error) = &outcome.result {
            process::print_error(error);
        }
    }

    /// The output of a stage; empty if its log file does not exist.
    fn read_log(&self, stage: &str) -> String {
        let text = fs::read(self.log_path(stage)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn log_path(&self, stage: &str) -> PathBuf {
        self.logs.join(format!("{}.log", stage.replace(' ', "-")))
    }
}

impl Drop for StageRunner {
    fn drop(&mut self) {
        // Best effort: a leftover copy has a unique name.
        let _left = fs::remove_file(&self.program);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_stage(name: &str, group: JobGroup, after: Option<&'static str>) -> CiStage {
        let after = after.into_iter().collect();
        CiStage {
            name: name.to_owned(),
            group,
            depends_on: after,
            run: Box::new(|_| Ok(PassFailCounts::ONE_PASSED)),
        }
    }

    #[test]
    fn each_job_group_runs_its_stages_in_order() {
        let stages = [
            test_stage("test", JobGroup::Workspace, None),
            test_stage("image", JobGroup::SeparateBuild, None),
            test_stage("docs", JobGroup::Workspace, None),
        ];
        let mut schedule = StageSchedule::new(&stages);
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Run(0));
        assert_eq!(schedule.next_stage(JobGroup::SeparateBuild), NextStage::Run(1));
        assert_eq!(schedule.next_stage(JobGroup::SeparateBuild), NextStage::Finished);
        assert_eq!(schedule.next_stage(JobGroup::Suites), NextStage::Finished);
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Run(2));
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Finished);
    }

    #[test]
    fn stage_waits_for_its_dependencies() {
        let stages = [
            test_stage("node", JobGroup::Workspace, Some("image")),
            test_stage("kms", JobGroup::Workspace, None),
            test_stage("image", JobGroup::SeparateBuild, None),
        ];
        let mut schedule = StageSchedule::new(&stages);
        assert_eq!(schedule.next_stage(JobGroup::SeparateBuild), NextStage::Run(2));
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Run(1));
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Wait);
        schedule.finish_stage(2, false);
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Run(0));
    }

    #[test]
    fn stage_is_skipped_if_its_dependency_failed() {
        let stages = [
            test_stage("programs", JobGroup::Workspace, None),
            test_stage("kms", JobGroup::Suites, Some("programs")),
        ];
        let mut schedule = StageSchedule::new(&stages);
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Run(0));
        assert_eq!(schedule.next_stage(JobGroup::Suites), NextStage::Wait);
        schedule.finish_stage(0, true);
        assert_eq!(
            schedule.next_stage(JobGroup::Suites),
            NextStage::DependencyFailed { stage: 1, failed: 0 }
        );
        assert_eq!(schedule.next_stage(JobGroup::Suites), NextStage::Finished);
    }

    #[test]
    fn stage_does_not_wait_for_unselected_stages() {
        let mut schedule =
            StageSchedule::new(&[test_stage("node", JobGroup::Workspace, Some("image"))]);
        assert_eq!(schedule.next_stage(JobGroup::Workspace), NextStage::Run(0));
    }
}
