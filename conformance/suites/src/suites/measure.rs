//! Numbers about the node side: our one process beside upstream's driver and provider, over the
//! same local Azure and the same Kubernetes API, one after the other in one run.
//!
//! This measures and knows no goals; `cargo xtask bench node` does.

mod contestant;
mod load;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde::Serialize;

use self::contestant::{Contestant, Who};
use self::load::Load;
use super::chain;
use crate::ground::Local;
use crate::peers::Nook;
use crate::site::Site;

/// How often a contestant looks at its vaults.
const INTERVAL: Duration = Duration::from_secs(40);

/// How often every volume is published again once this time is over.
const ROUNDS: u32 = 3;

/// How long a process may come to rest.
const REST: Duration = Duration::from_secs(5);

/// The kubelet publishes volumes side by side.
const CROWD: usize = 20;

/// What is measured with.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) site: Arc<Site>,
    pub(crate) azure: Arc<Local>,
    pub(crate) lanyard: PathBuf,
    pub(crate) driver: PathBuf,
    pub(crate) provider: PathBuf,
    pub(crate) crds: String,
    /// Where the numbers go.
    pub(crate) output: PathBuf,
}

/// One number about one subject.
#[derive(Debug, Clone, Serialize)]
struct Measurement {
    subject: &'static str,
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

/// One trial, which fails where something could not be measured.
pub(crate) fn trials(stage: Stage) -> Vec<Trial> {
    vec![Trial::test("measure::the_node_side", move || {
        let runtime = Arc::clone(&stage.site.runtime);
        let measurements = runtime.block_on(stage.measure())?;
        let text = serde_json::to_string(&measurements).map_err(chain)?;
        std::fs::write(&stage.output, text).map_err(chain)
    })]
}

impl Stage {
    async fn measure(&self) -> Result<Vec<Measurement>, Failed> {
        let load = Load::write(self).await?;
        let mut all = Vec::new();
        for who in [Who::Upstream, Who::Ours] {
            all.extend(self.measure_one(who, &load).await?);
        }
        Ok(all)
    }

    async fn measure_one(&self, who: Who, load: &Load) -> Result<Vec<Measurement>, Failed> {
        let directory = self.site.directory();
        let nook =
            Nook::new(directory, who.short(), self.site.kubectl.kubeconfig()).map_err(chain)?;
        let mut sheet = Sheet { subject: who.name(), rows: Vec::new() };
        let contestant = Contestant::start(self, who, &nook).await?;
        let clock = SystemClock::new();
        clock.sleep(REST).await;
        sheet.put("idle_memory", "MiB", contestant.memory()?);
        let volumes = Load::volumes(self, &nook, who)?;
        let used = contestant.processor_time()?;
        let mounted = contestant.publish(&volumes, CROWD).await?;
        let used = contestant.processor_time()? - used;
        sheet.put("cold_mounts_time", "ms", mounted.whole);
        sheet.put("cold_mount_median", "ms", mounted.median());
        sheet.put("cold_mount_slowest", "ms", mounted.slowest());
        sheet.put("cold_mounts_processor_time", "ms", used);
        let unchanged = contestant.publish(&volumes, 1).await?;
        sheet.put("unchanged_republish_median", "ms", unchanged.median());
        clock.sleep(REST).await;
        sheet.put("memory_100_volumes_9000_classes", "MiB", contestant.memory()?);
        let before = (load.vault_requests(self).await?, Load::api_writes(self)?);
        let begin = clock.monotonic();
        let mut latencies = Vec::new();
        for _ in 0..ROUNDS {
            // A kubelet's period is no multiple of the interval; a quarter more is enough to be late.
            clock.sleep(INTERVAL + INTERVAL / 4).await;
            latencies.push(contestant.publish(&volumes, CROWD).await?.median());
        }
        let after = (load.vault_requests(self).await?, Load::api_writes(self)?);
        let intervals =
            clock.monotonic().saturating_sub(begin).as_secs_f64() / INTERVAL.as_secs_f64();
        let per_interval = |count: u64| float(count) / intervals;
        sheet.put("vault_requests_per_interval", "requests", per_interval(after.0 - before.0));
        sheet.put("api_writes_per_interval", "writes", per_interval(after.1 - before.1));
        latencies.sort_by(f64::total_cmp);
        sheet.put("late_republish_median", "ms", latencies[latencies.len() / 2]);
        sheet.put("memory_after_rotations", "MiB", contestant.memory()?);
        contestant.unpublish(&volumes).await?;
        contestant.end().await;
        Ok(sheet.rows)
    }
}

/// The numbers of one subject.
struct Sheet {
    subject: &'static str,
    rows: Vec<Measurement>,
}

impl Sheet {
    fn put(&mut self, metric: &'static str, unit: &'static str, value: f64) {
        self.rows.push(Measurement { subject: self.subject, metric, unit, value });
    }
}

/// Counts here are far below what a double holds exactly.
fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
