//! Runs areas of commands in parallel. Each area has a local Azure of its own, so that an area can assert that it
//! leaves nothing behind while others create resources.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use lanyard_vocabulary::format_error_chain;
use libtest_mimic::Failed;
use parking_lot::Mutex;

use super::{AreaCommands, AzureCliError, AzureCliSuite};
use crate::azure_target::LocalAzureTarget;
use crate::local_azure::LoggedRequest;

/// The areas that run at the same time. Most of the time of a command is Python's or lanyard's, the rest is waiting.
const PARALLEL_AREAS: usize = 3;

/// The problems of a command, or why it did not run; `Ok` if its result is as expected.
type CommandResult = Result<(), String>;

/// The areas of a suite, which start with the first trial.
pub(super) struct AreaRuns {
    suite: Arc<AzureCliSuite>,
    /// The areas that have not started.
    waiting: Mutex<VecDeque<QueuedArea>>,
    started: std::sync::Once,
}

struct QueuedArea {
    commands: AreaCommands,
    outcomes: Sender<(usize, CommandResult)>,
}

/// The results of the commands of an area, in their order.
pub(super) struct AreaOutcomes(Mutex<Receiver<(usize, CommandResult)>>);

impl AreaRuns {
    /// Queues areas, and returns them with their outcomes.
    pub(super) fn new(
        suite: Arc<AzureCliSuite>,
        areas: impl IntoIterator<Item = AreaCommands>,
    ) -> (Arc<Self>, Vec<Arc<AreaOutcomes>>) {
        let mut waiting = VecDeque::new();
        let mut outcomes = Vec::new();
        for commands in areas {
            let (sender, receiver) = mpsc::channel();
            waiting.push_back(QueuedArea { commands, outcomes: sender });
            outcomes.push(Arc::new(AreaOutcomes(Mutex::new(receiver))));
        }
        let waiting = Mutex::new(waiting);
        (Arc::new(Self { suite, waiting, started: std::sync::Once::new() }), outcomes)
    }

    /// Waits for the result of a command. The first call starts the areas.
    pub(super) fn wait(
        self: &Arc<Self>,
        outcomes: &AreaOutcomes,
        command: usize,
    ) -> Result<(), Failed> {
        self.started.call_once(|| {
            for _ in 0..PARALLEL_AREAS {
                let runs = Arc::clone(self);
                thread::spawn(move || runs.run_queued());
            }
        });
        let outcomes = outcomes.0.lock();
        loop {
            let Ok((index, result)) = outcomes.recv() else {
                return Err("the area ended before this command ran".into());
            };
            // Skips commands that the filter of the trials excludes.
            if index == command {
                return result.map_err(Failed::from);
            }
        }
    }

    fn run_queued(&self) {
        loop {
            let area = self.waiting.lock().pop_front();
            let Some(QueuedArea { commands, outcomes }) = area else { return };
            // The trials may have ended, so nothing waits for the results.
            let report = |index, result| drop(outcomes.send((index, result)));
            if let Err(error) = self.suite.run_area(&commands, &report) {
                let message = format_error_chain(&error);
                for index in 0..commands.count {
                    report(index, Err(message.clone()));
                }
            }
        }
    }
}

impl AzureCliSuite {
    /// Runs the commands of an area in their order, and reports the result of each.
    fn run_area(
        &self,
        area: &AreaCommands,
        report: &dyn Fn(usize, CommandResult),
    ) -> Result<(), AzureCliError> {
        let azure = self.start_azure()?;
        let mut process = self.start_process(&azure, &area.name)?;
        let mut last_request = 0;
        let mut last_result = None;
        for index in 0..area.count {
            let mut result = match process.run_command(index) {
                Ok(problems) if problems.is_empty() => Ok(()),
                Ok(problems) => Err(problems),
                Err(error) => Err(vec![format_error_chain(&error)]),
            };
            let requests =
                self.runtime.block_on(azure.control_api().requests_since(last_request))?;
            last_request = requests.last().map_or(last_request, |it| it.sequence);
            if let Err(problems) = &mut result {
                problems.push("requests:".to_owned());
                problems.extend(requests.iter().map(request_line));
            }
            let result = result.map_err(|problems| problems.join("\n"));
            if index + 1 == area.count {
                last_result = Some((index, result));
            } else {
                report(index, result);
            }
        }
        // After the last result, the suite compares the request logs and ends, so everything stops before.
        self.add_request_log(&azure)?;
        drop((process, azure));
        if let Some((index, result)) = last_result {
            report(index, result);
        }
        Ok(())
    }

    fn add_request_log(&self, azure: &LocalAzureTarget) -> Result<(), AzureCliError> {
        Ok(self.request_log.add_trial(azure.control_api())?)
    }
}

fn request_line(request: &LoggedRequest) -> String {
    let LoggedRequest { method, host, path, status, .. } = request;
    let version = request.api_version.as_deref().unwrap_or("none");
    format!("  {status} {method} https://{host}{path} (api-version {version})")
}
