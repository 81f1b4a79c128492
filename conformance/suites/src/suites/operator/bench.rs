//! Numbers about the operator at a real API server: how fast a fleet gets what it should have, beside
//! the rate at which the same server takes the same bytes from a plain loop; what is asked once all
//! is settled; memory; and what one change changes.
//!
//! This measures and knows no goals; `cargo xtask bench operator` does. Who wrote what and when is
//! told by the API server's audit log, not by the operator.

mod audit;
mod fleet;
mod holdings;
mod peer;
mod process;
mod run;
mod script;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::Trial;
use serde::Serialize;

pub(crate) use self::stage::Ground;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// How many HostedClusters there are.
    pub(crate) clusters: usize,
    /// How long is counted what is asked once all is settled.
    pub(crate) window: Duration,
    /// How long nothing must have been written before all is settled.
    pub(crate) quiet: Duration,
}

impl Scale {
    /// Enough to see that the program works.
    pub(crate) const SMALL: Self =
        Self { clusters: 5, window: Duration::from_secs(3), quiet: Duration::from_secs(2) };

    /// So many HostedClusters. The window of a whole fleet is longer than the time after which the
    /// operator looks at each of them though nothing was told, and than its watches last.
    pub(crate) const fn of(clusters: usize) -> Self {
        let window = Duration::from_secs(if clusters < FLEET { 20 } else { 360 });
        Self { clusters, window, quiet: Duration::from_secs(5) }
    }
}

/// One number about one subject.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurement {
    subject: &'static str,
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

/// One trial, which fails where something could not be measured. The numbers go to the file.
pub(crate) fn trials(ground: Ground, scale: Scale, output: PathBuf) -> Vec<Trial> {
    vec![Trial::test("bench::a_fleet_of_hosted_clusters", move || {
        let runtime = tokio::runtime::Runtime::new()?;
        let measurements =
            runtime.block_on(run::measure(&ground, scale)).inspect_err(|failed| {
                // Who calls reads the numbers alone.
                run::note(failed.message().unwrap_or_default());
            })?;
        std::fs::write(&output, serde_json::to_string(&measurements)?)?;
        Ok(())
    })]
}

/// The same with few clusters, and no number is kept: this program must not rot.
pub(crate) fn smoke(ground: Ground) -> Trial {
    Trial::test("bench::a_small_fleet_can_be_measured", move || {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(run::measure(&ground, Scale::SMALL))?;
        Ok(())
    })
}

/// From how many clusters on a fleet is measured as a whole.
const FLEET: usize = 500;

/// The names of the rows.
const OURSELVES: &str = "lanyard operator";
const PEER: &str = "plain loop";

/// The numbers of one subject.
#[derive(Debug, Default)]
struct Sheet(Vec<Measurement>);

impl Sheet {
    fn ours(&mut self, metric: &'static str, unit: &'static str, value: f64) {
        self.0.push(Measurement { subject: OURSELVES, metric, unit, value });
    }

    fn peers(&mut self, metric: &'static str, unit: &'static str, value: f64) {
        self.0.push(Measurement { subject: PEER, metric, unit, value });
    }
}

/// Counts here are far below what a double holds exactly.
fn float(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::INFINITY, f64::from)
}
