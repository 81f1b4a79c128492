//! A whole run in lanes side by side, each stage a process of its own whose lines are shown together.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::processor_time::ProcessorTime;
use super::{Outcome, Stage};
use crate::failure::TaskError;
use crate::house::House;
use crate::process::{self, Stopwatch, Tally};

/// Which stages run one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// What builds in the workspace's own directory, where cargo lets one build at a time.
    Workspace,
    /// What builds elsewhere, and what nothing else waits for.
    Aside,
    /// Suites without a node of their own. They run the programs as they are.
    Suites,
    /// Suites on a node. There is one at a time.
    Nodes,
}

impl Lane {
    const ALL: [Self; 4] = [Self::Workspace, Self::Aside, Self::Suites, Self::Nodes];

    /// How far it gives way to others: suites wait for other programs most of the time, and have
    /// deadlines.
    const fn niceness(self) -> Option<&'static str> {
        match self {
            Self::Suites | Self::Nodes => None,
            Self::Workspace => Some("5"),
            Self::Aside => Some("10"),
        }
    }
}

/// Runs all stages and returns how they ended, in their order.
pub(super) fn run(house: &House, stages: &[Stage]) -> Result<Vec<Outcome>, TaskError> {
    let runner = Runner::prepare(house)?;
    process::say(&format!("what runs writes to {}", runner.logs.display()));
    let schedule = Mutex::new(Schedule::new(stages));
    let ended = Condvar::new();
    let outcomes = Mutex::new(Vec::with_capacity(stages.len()));
    let travel = &|lane: Lane| {
        while let Some((index, lacking)) = next(&schedule, &ended, lane) {
            let stage = &stages[index];
            // A panic here fails the stage: the other lanes must not wait for it for ever.
            let mut ending = Ending { schedule: &schedule, ended: &ended, index, failed: true };
            let outcome = match lacking {
                Some(failed) => Outcome::not_run(&stage.name, &stages[failed].name),
                None => runner.run(stage, lane),
            };
            ending.failed = outcome.result.is_err();
            // One stage's lines at a time.
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            runner.show(&outcome, lacking.is_none(), outcomes.len() + 1, stages.len());
            outcomes.push((index, outcome));
        }
    };
    thread::scope(|scope| {
        for lane in Lane::ALL {
            scope.spawn(move || travel(lane));
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(index, _)| *index);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Records the end of a stage when it is dropped.
struct Ending<'a> {
    schedule: &'a Mutex<Schedule>,
    ended: &'a Condvar,
    index: usize,
    failed: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.end(self.index, self.failed);
        self.ended.notify_all();
    }
}

/// The next stage of a lane, once there is one, and a stage that it needs and that failed.
fn next(schedule: &Mutex<Schedule>, ended: &Condvar, lane: Lane) -> Option<(usize, Option<usize>)> {
    let mut schedule = schedule.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match schedule.begin(lane) {
            Turn::Stage(index) => return Some((index, None)),
            Turn::Lacking { stage, failed } => return Some((stage, Some(failed))),
            Turn::Wait => {
                schedule = ended.wait(schedule).unwrap_or_else(PoisonError::into_inner);
            }
            Turn::Over => return None,
        }
    }
}

/// What a lane does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Stage(usize),
    /// A stage that cannot run, because one that it needs failed.
    Lacking {
        stage: usize,
        failed: usize,
    },
    /// All that is left waits for other lanes.
    Wait,
    Over,
}

/// Which stages wait, and for what.
#[derive(Debug)]
struct Schedule {
    /// In the order of the stages.
    waiting: Vec<(usize, Lane, Vec<usize>)>,
    ended: BTreeSet<usize>,
    failed: BTreeSet<usize>,
}

impl Schedule {
    /// A stage waits for another that runs at all.
    fn new(stages: &[Stage]) -> Self {
        let place = |name: &str| stages.iter().position(|it| it.name == name);
        let waiting = stages
            .iter()
            .enumerate()
            .map(|(index, stage)| {
                let after = stage.after.iter().filter_map(|name| place(name)).collect();
                (index, stage.lane, after)
            })
            .collect();
        Self { waiting, ended: BTreeSet::new(), failed: BTreeSet::new() }
    }

    fn begin(&mut self, lane: Lane) -> Turn {
        let mine = |(_, of, _): &(usize, Lane, Vec<usize>)| *of == lane;
        let ready = self.waiting.iter().position(|entry| {
            mine(entry) && entry.2.iter().all(|needed| self.ended.contains(needed))
        });
        match ready {
            Some(place) => {
                let (stage, _, needed) = self.waiting.remove(place);
                match needed.into_iter().find(|needed| self.failed.contains(needed)) {
                    Some(failed) => Turn::Lacking { stage, failed },
                    None => Turn::Stage(stage),
                }
            }
            None if self.waiting.iter().any(mine) => Turn::Wait,
            None => Turn::Over,
        }
    }

    fn end(&mut self, index: usize, failed: bool) {
        self.ended.insert(index);
        if failed {
            self.failed.insert(index);
        }
    }
}

/// Starts stages as processes.
#[derive(Debug)]
struct Runner {
    /// A copy of this program: stages build the original.
    program: PathBuf,
    logs: PathBuf,
    gives_way: bool,
}

impl Runner {
    fn prepare(house: &House) -> Result<Self, TaskError> {
        let logs = house.target().join("ci");
        let file = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| TaskError::File { action, path, source }
        };
        fs::create_dir_all(&logs).map_err(file("create", &logs))?;
        let own = std::env::current_exe().map_err(file("find", Path::new("xtask")))?;
        // Never overwritten: another run may use it.
        let program = logs.join(format!("xtask-{}", std::process::id()));
        fs::copy(&own, &program).map_err(file("copy", &own))?;
        Ok(Self { program, logs, gives_way: house.has_program("nice") })
    }

    fn run(&self, stage: &Stage, lane: Lane) -> Outcome {
        process::say(&format!("... {}", stage.name));
        let watch = Stopwatch::start();
        let result = self.result(stage, lane).and_then(super::nothing_ignored);
        let (name, seconds) = (stage.name.clone(), watch.elapsed().as_secs());
        let log = self.text(&stage.name);
        let processor = log.lines().rev().find_map(ProcessorTime::parse);
        Outcome { name, seconds, processor, result }
    }

    fn result(&self, stage: &Stage, lane: Lane) -> Result<Tally, TaskError> {
        let path = self.log(&stage.name);
        let file = |action| {
            let path = path.clone();
            move |source| TaskError::File { action, path, source }
        };
        let log = File::create(&path).map_err(file("create"))?;
        let mut command = self.command(lane);
        command.args(["ci", "--stage", &stage.name]);
        command.stderr(log.try_clone().map_err(file("share"))?).stdout(log);
        process::run(&mut command)?;
        let text = self.text(&stage.name);
        let count = text.lines().next_back().and_then(Tally::parse);
        count.ok_or_else(|| process::failed(&command, "no count in its last line"))
    }

    fn command(&self, lane: Lane) -> Command {
        let Some(niceness) = lane.niceness().filter(|_| self.gives_way) else {
            return Command::new(&self.program);
        };
        let mut command = Command::new("nice");
        command.args(["-n", niceness]).arg(&self.program);
        command
    }

    fn show(&self, outcome: &Outcome, has_run: bool, number: usize, total: usize) {
        process::say(&format!("\n=== {number}/{total} {}", outcome.name));
        if has_run {
            process::say(self.text(&outcome.name).trim_end());
        }
        if let Err(error) = &outcome.result {
            process::complain(error);
        }
    }

    /// What a stage wrote; nothing where there is no such file.
    fn text(&self, stage: &str) -> String {
        let text = fs::read(self.log(stage)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn log(&self, stage: &str) -> PathBuf {
        self.logs.join(format!("{}.log", stage.replace(' ', "-")))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Best effort: a leftover copy has a name of its own.
        let _left = fs::remove_file(&self.program);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, lane: Lane, after: Option<&'static str>) -> Stage {
        let after = after.into_iter().collect();
        Stage { name: name.to_owned(), lane, after, run: Box::new(|_| Ok(Tally::ONE)) }
    }

    #[test]
    fn each_lane_takes_its_stages_in_their_order() {
        let stages = [
            stage("test", Lane::Workspace, None),
            stage("image", Lane::Aside, None),
            stage("docs", Lane::Workspace, None),
        ];
        let mut schedule = Schedule::new(&stages);
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Stage(0));
        assert_eq!(schedule.begin(Lane::Aside), Turn::Stage(1));
        assert_eq!(schedule.begin(Lane::Aside), Turn::Over);
        assert_eq!(schedule.begin(Lane::Suites), Turn::Over);
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Stage(2));
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Over);
    }

    #[test]
    fn a_stage_waits_for_what_it_takes_while_others_go_first() {
        let stages = [
            stage("node", Lane::Workspace, Some("image")),
            stage("kms", Lane::Workspace, None),
            stage("image", Lane::Aside, None),
        ];
        let mut schedule = Schedule::new(&stages);
        assert_eq!(schedule.begin(Lane::Aside), Turn::Stage(2));
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Stage(1));
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Wait);
        schedule.end(2, false);
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Stage(0));
    }

    #[test]
    fn a_stage_does_not_run_if_one_that_it_needs_failed() {
        let stages = [
            stage("programs", Lane::Workspace, None),
            stage("kms", Lane::Suites, Some("programs")),
        ];
        let mut schedule = Schedule::new(&stages);
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Stage(0));
        assert_eq!(schedule.begin(Lane::Suites), Turn::Wait);
        schedule.end(0, true);
        assert_eq!(schedule.begin(Lane::Suites), Turn::Lacking { stage: 1, failed: 0 });
        assert_eq!(schedule.begin(Lane::Suites), Turn::Over);
    }

    #[test]
    fn what_is_not_run_is_not_waited_for() {
        let mut schedule = Schedule::new(&[stage("node", Lane::Workspace, Some("image"))]);
        assert_eq!(schedule.begin(Lane::Workspace), Turn::Stage(0));
    }
}
