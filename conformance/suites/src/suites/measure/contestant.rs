//! Who is measured: the processes of a node side, and the calls to them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use rustix::fs::{Advice, fadvise};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{INTERVAL, Stage, chain, float};
use crate::daemon::Daemon;
use crate::peers::{Nook, Rotation};
use crate::volume::{NodePlugin, Volume};

/// A side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Ours,
    Upstream,
}

impl Who {
    /// The name in the rows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "lanyard node",
            Self::Upstream => "driver 1.6.0 + provider 1.8.2",
        }
    }

    /// The name in paths and of pods.
    pub(super) const fn short(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Upstream => "upstream",
        }
    }
}

/// The processes of one side.
#[derive(Debug)]
pub(super) struct Contestant {
    plugin: NodePlugin,
    daemons: Vec<Daemon>,
}

/// How long calls took, in milliseconds.
#[derive(Debug)]
pub(super) struct Times {
    /// From the first call to the last answer.
    pub(super) whole: f64,
    each: Vec<f64>,
}

impl Times {
    pub(super) fn median(&self) -> f64 {
        self.each.get(self.each.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub(super) fn slowest(&self) -> f64 {
        self.each.last().copied().unwrap_or(f64::NAN)
    }
}

impl Contestant {
    pub(super) async fn start(stage: &Stage, who: Who, nook: &Nook) -> Result<Self, Failed> {
        let rotation = Rotation::Every(INTERVAL);
        match who {
            Who::Ours => {
                forget(&stage.lanyard)?;
                let environment = stage.azure.environment_of_ours();
                let driver = nook.lanyard(&stage.lanyard, rotation, &environment).await;
                let driver = driver.map_err(chain)?;
                Ok(Self { plugin: driver.plugin, daemons: vec![driver.daemon] })
            }
            Who::Upstream => {
                forget(&stage.provider)?;
                forget(&stage.driver)?;
                let environment = stage.azure.environment();
                let provider = nook.upstream_provider(&stage.provider, "azure", &environment).await;
                let provider = provider.map_err(chain)?;
                let driver = nook.upstream_driver(&stage.driver, rotation).await.map_err(chain)?;
                Ok(Self { plugin: driver.plugin, daemons: vec![driver.daemon, provider] })
            }
        }
    }

    /// The resident memory of all processes, in MiB.
    pub(super) fn memory(&self) -> Result<f64, Failed> {
        self.daemons.iter().map(resident).sum()
    }

    /// The processor time that all processes have used, in milliseconds.
    pub(super) fn processor_time(&self) -> Result<f64, Failed> {
        self.daemons.iter().map(used).sum()
    }

    /// Publishes every volume, at most `crowd` at once.
    pub(super) async fn publish(&self, volumes: &[Volume], crowd: usize) -> Result<Times, Failed> {
        let clock = SystemClock::new();
        let gate = Arc::new(Semaphore::new(crowd));
        let begin = clock.monotonic();
        let mut calls = JoinSet::new();
        for volume in volumes {
            let (plugin, volume, gate) = (self.plugin.clone(), volume.clone(), Arc::clone(&gate));
            calls.spawn(async move {
                let permit = gate.acquire_owned().await;
                let clock = SystemClock::new();
                let begin = clock.monotonic();
                let answer = plugin.publish(&volume).await;
                drop(permit);
                answer.map(|()| milliseconds(clock.monotonic().saturating_sub(begin)))
            });
        }
        let mut each = Vec::with_capacity(volumes.len());
        while let Some(call) = calls.join_next().await {
            each.push(call.map_err(chain)?.map_err(chain)?);
        }
        each.sort_by(f64::total_cmp);
        Ok(Times { whole: milliseconds(clock.monotonic().saturating_sub(begin)), each })
    }

    pub(super) async fn unpublish(&self, volumes: &[Volume]) -> Result<(), Failed> {
        for volume in volumes {
            self.plugin.unpublish(volume).await.map_err(chain)?;
            volume.clear();
        }
        Ok(())
    }

    pub(super) async fn end(self) {
        for daemon in self.daemons {
            daemon.end().await;
        }
    }
}

/// Takes a program out of the page cache, as it is after a node has booted. How it came there
/// decides how much of it is mapped around each page that is touched: a fresh copy costs a tenth
/// more.
fn forget(program: &Path) -> Result<(), Failed> {
    let file = File::open(program).map_err(chain)?;
    // What is not written yet would stay.
    file.sync_all().map_err(chain)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(chain)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The processor time of a process in both modes, in milliseconds (`proc_pid_stat(5)`).
fn used(daemon: &Daemon) -> Result<f64, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.id())).map_err(chain)?;
    // The name before it may hold blanks. `utime` and `stime` are the 14th and 15th field.
    let (_, after) = stat.rsplit_once(')').ok_or("a process has no name")?;
    let ticks = after.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<_, _>>().map_err(chain)?;
    Ok(float(ticks) * MILLISECONDS_PER_TICK)
}

/// `USER_HZ`: Linux counts in hundredths of a second for programs, whatever it does inside.
const MILLISECONDS_PER_TICK: f64 = 10.0;

/// `VmRSS` of a process.
fn resident(daemon: &Daemon) -> Result<f64, Failed> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).map_err(chain)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map(|it| float(it) / 1_024.0).ok_or_else(|| "a process has no memory".into())
}
