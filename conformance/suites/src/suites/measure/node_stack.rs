//! The measured processes, and the calls to them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use rustix::fs::{Advice, fadvise};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{NodeBenchmarkFixture, ROTATION_INTERVAL, failed_with_causes};
use crate::daemon::Daemon;
use crate::driver_processes::{DriverFixtureDirectory, DriverRotation};
use crate::process_usage;
use crate::volume::{CsiDriverClient, TestVolume};

/// A measured subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeStackKind {
    Lanyard,
    Upstream,
}

impl NodeStackKind {
    /// The subject's name in the results.
    pub(super) const fn display_name(self) -> &'static str {
        match self {
            Self::Lanyard => "lanyard node",
            Self::Upstream => "driver 1.6.0 + provider 1.8.2",
        }
    }

    /// The subject's name in paths and pod names.
    pub(super) const fn short_name(self) -> &'static str {
        match self {
            Self::Lanyard => "ours",
            Self::Upstream => "upstream",
        }
    }
}

/// The processes of one subject.
#[derive(Debug)]
pub(super) struct NodeStack {
    client: CsiDriverClient,
    daemons: Vec<Daemon>,
}

/// Durations of calls, in milliseconds.
#[derive(Debug)]
pub(super) struct CallDurations {
    /// From the first call to the last response.
    pub(super) total: f64,
    sorted_durations: Vec<f64>,
}

impl CallDurations {
    pub(super) fn median(&self) -> f64 {
        self.sorted_durations.get(self.sorted_durations.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub(super) fn slowest(&self) -> f64 {
        self.sorted_durations.last().copied().unwrap_or(f64::NAN)
    }
}

impl NodeStack {
    pub(super) async fn start(
        fixture: &NodeBenchmarkFixture,
        kind: NodeStackKind,
        directories: &DriverFixtureDirectory,
    ) -> Result<Self, Failed> {
        let rotation = DriverRotation::Every(ROTATION_INTERVAL);
        match kind {
            NodeStackKind::Lanyard => {
                drop_page_cache(&fixture.lanyard_program)?;
                let environment = fixture.azure.lanyard_environment();
                let driver = directories
                    .start_lanyard_node(&fixture.lanyard_program, rotation, &environment)
                    .await;
                let driver = driver.map_err(failed_with_causes)?;
                Ok(Self { client: driver.client, daemons: vec![driver.daemon] })
            }
            NodeStackKind::Upstream => {
                drop_page_cache(&fixture.provider_program)?;
                drop_page_cache(&fixture.driver_program)?;
                let environment = fixture.azure.client_environment();
                let provider = directories
                    .start_upstream_provider(&fixture.provider_program, "azure", &environment)
                    .await;
                let provider = provider.map_err(failed_with_causes)?;
                let driver = directories
                    .start_upstream_driver(&fixture.driver_program, rotation)
                    .await
                    .map_err(failed_with_causes)?;
                Ok(Self { client: driver.client, daemons: vec![driver.daemon, provider] })
            }
        }
    }

    /// The resident memory of all processes, in MiB.
    pub(super) fn resident_memory(&self) -> Result<f64, Failed> {
        let memory = |daemon: &Daemon| process_usage::process_memory(daemon.pid());
        self.daemons.iter().map(|daemon| memory(daemon).map(|memory| memory.resident)).sum()
    }

    /// The processor time that all processes have used, in milliseconds.
    pub(super) fn processor_time(&self) -> Result<f64, Failed> {
        let used = |daemon: &Daemon| process_usage::processor_time(daemon.pid());
        self.daemons.iter().map(|daemon| used(daemon).map(milliseconds)).sum()
    }

    /// Publishes every volume, at most `crowd` at a time.
    pub(super) async fn publish_all(
        &self,
        volumes: &[TestVolume],
        crowd: usize,
    ) -> Result<CallDurations, Failed> {
        let clock = SystemClock::new();
        let gate = Arc::new(Semaphore::new(crowd));
        let begin = clock.monotonic();
        let mut calls = JoinSet::new();
        for volume in volumes {
            let (plugin, volume, gate) = (self.client.clone(), volume.clone(), Arc::clone(&gate));
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
            each.push(call.map_err(failed_with_causes)?.map_err(failed_with_causes)?);
        }
        each.sort_by(f64::total_cmp);
        Ok(CallDurations {
            total: milliseconds(clock.monotonic().saturating_sub(begin)),
            sorted_durations: each,
        })
    }

    pub(super) async fn unpublish_all(&self, volumes: &[TestVolume]) -> Result<(), Failed> {
        for volume in volumes {
            self.client.unpublish(volume).await.map_err(failed_with_causes)?;
            volume.remove_directory();
        }
        Ok(())
    }

    pub(super) async fn stop(self) {
        for daemon in self.daemons {
            daemon.stop().await;
        }
    }
}

/// Removes a program from the page cache, as after a boot. How it was loaded decides how many pages are
/// mapped around a touched one: a fresh copy costs a tenth more memory.
fn drop_page_cache(program: &Path) -> Result<(), Failed> {
    let file = File::open(program).map_err(failed_with_causes)?;
    // Dirty pages would stay in the cache.
    file.sync_all().map_err(failed_with_causes)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(failed_with_causes)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
