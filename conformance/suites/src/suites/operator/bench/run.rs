//! The measurement, from the first write to the last look.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use serde_json::json;

use super::audit::Tally;
use super::fleet::{self, Fleet};
use super::holdings::Holdings;
use super::peer::{Manner, Pace};
use super::process::{Memory, OperatorProcess};
use super::script::Script;
use super::stage::{Ground, Stage, rehearse};
use super::{Measurement, Scale, Sheet, float};

/// Measures everything, in one run. The peer and the operator each write all clusters twice, and the
/// faster run of each counts: the speed of the machine differs by more than what is compared. Each run
/// has its own API server, which has answered a few of the same writes before: a server that holds more
/// objects is slower.
pub(super) async fn measure(ground: &Ground, scale: Scale) -> Result<Vec<Measurement>, Failed> {
    let script = rehearse(ground, scale.quiet).await?;
    note(&format!("{} writes for each cluster", script.len()));
    let peer = Peer { ground, script: &script, few: (scale.clusters / 20).max(1) };
    let manner = peer.best_manner().await?;
    let before = peer.write_all(manner, scale.clusters).await?;
    let (first, mut sheet) = Run::start(peer, scale).await?.everything().await?;
    let second = Run::start(peer, scale).await?.convergence().await?;
    let after = peer.write_all(manner, scale.clusters).await?;
    // A refused request of the slower run counts as well.
    let refused = first.asked.refused() + second.asked.refused();
    sheet.ours("converge_refused", "requests", float(refused));
    let ours = if second.rate() > first.rate() { second } else { first };
    ours.note_on(&mut sheet, scale.clusters);
    let best = if after.rate() > before.rate() { after } else { before };
    sheet.peers("converge_rate", "writes/s", best.rate());
    sheet.peers("arrival_rate", "writes/s", best.rate());
    sheet.peers("converge_time", "s", best.took.as_secs_f64());
    sheet.peers("writes_per_cluster", "writes", float(best.writes) / float(scale.clusters));
    sheet.peers("requests_at_once", "requests", float(best.manner.at_once));
    Ok(sheet.0)
}

/// What an operator did until all clusters had everything.
#[derive(Debug)]
struct Converged {
    asked: Tally,
    /// From its start to its last write, in seconds.
    took: f64,
    /// In seconds.
    processor_time: f64,
}

impl Converged {
    /// Writes in a second.
    fn rate(&self) -> f64 {
        float(self.asked.writes()) / self.took
    }

    fn note_on(&self, sheet: &mut Sheet, clusters: usize) {
        let (asked, clusters) = (&self.asked, float(clusters));
        sheet.ours("converge_rate", "writes/s", self.rate());
        sheet.ours("converge_time", "s", self.took);
        sheet.ours("longest_pause", "s", asked.longest_pause().as_secs_f64());
        sheet.ours("writes_per_cluster", "writes", float(asked.writes()) / clusters);
        sheet.ours("requests_per_cluster", "requests", float(asked.requests()) / clusters);
        sheet.ours("requests_at_once", "requests", asked.writing().as_secs_f64() / self.took);
        sheet.ours("converge_processor_time", "s", self.processor_time);
    }
}

/// The peer, and what it writes.
#[derive(Clone, Copy)]
struct Peer<'a> {
    ground: &'a Ground,
    script: &'a Script,
    /// How many clusters it writes where that is enough.
    few: usize,
}

/// The peer at an API server.
struct StartedPeer<'a> {
    stage: Stage,
    script: &'a Script,
    /// How many clusters it has written.
    clusters: usize,
}

impl<'a> Peer<'a> {
    /// An API server of its own, with a few clusters: what a server does for the first time takes
    /// longer.
    async fn start(self) -> Result<StartedPeer<'a>, Failed> {
        let stage = Stage::prepare(self.ground).await?;
        let mut started = StartedPeer { stage, script: self.script, clusters: 0 };
        started.write(Manner::ALL[0], self.few).await?;
        Ok(started)
    }

    async fn best_manner(self) -> Result<Manner, Failed> {
        let mut started = self.start().await?;
        let mut best: Option<Pace> = None;
        for manner in Manner::ALL {
            let pace = started.write(manner, self.few).await?;
            if best.is_none_or(|best| pace.rate() > best.rate()) {
                best = Some(pace);
            }
        }
        Ok(best.map_or(Manner::ALL[0], |best| best.manner))
    }

    async fn write_all(self, manner: Manner, clusters: usize) -> Result<Pace, Failed> {
        self.start().await?.write(manner, clusters).await
    }
}

impl StartedPeer<'_> {
    async fn write(&mut self, manner: Manner, clusters: usize) -> Result<Pace, Failed> {
        let kubeconfig = self.stage.peers_kubeconfig();
        let first = self.clusters;
        self.clusters += clusters;
        let pace = manner.write(&kubeconfig, self.script, first, clusters).await?;
        let counted = self.stage.audit.read()?;
        if counted.writes() != u64::try_from(pace.writes)? {
            return Err("the server counts other writes than the peer".into());
        }
        note(&format!("{manner:?}: {:.0} writes/s of {} clusters", pace.rate(), clusters));
        Ok(pace)
    }
}

struct Run<'a> {
    stage: Stage,
    fleet: Fleet,
    script: &'a Script,
    scale: Scale,
    clock: SystemClock,
    sheet: Sheet,
}

impl<'a> Run<'a> {
    /// On an API server of its own.
    async fn start(peer: Peer<'a>, scale: Scale) -> Result<Self, Failed> {
        let stage = peer.start().await?.stage;
        stage.clear_after_peer().await?;
        let fleet = Fleet::like(&peer.ground.example);
        let (clock, sheet) = (SystemClock::new(), Sheet::default());
        Ok(Self { stage, fleet, script: peer.script, scale, clock, sheet })
    }

    /// All numbers of one operator. Its API server ends with the run, so that it takes no time of the next one.
    async fn everything(mut self) -> Result<(Converged, Sheet), Failed> {
        self.idle().await?;
        let (mut operator, converged) = self.converge().await?;
        self.memory("converged_memory", "converged_memory_own", operator.memory()?);
        self.settled(&mut operator).await?;
        self.one_change(&mut operator).await?;
        self.arrivals(&mut operator).await?;
        operator.end().await?;
        Ok((converged, self.sheet))
    }

    /// The convergence of one operator alone.
    async fn convergence(mut self) -> Result<Converged, Failed> {
        let (operator, converged) = self.converge().await?;
        operator.end().await?;
        Ok(converged)
    }

    /// An operator that has nothing to do.
    async fn idle(&mut self) -> Result<(), Failed> {
        let mut operator = self.stage.start_operator()?;
        let mut asked = Tally::default();
        let patience = Duration::from_mins(1);
        self.until(&mut operator, "everything is watched", patience, |run| {
            asked.add(run.stage.audit.read()?);
            Ok(asked.watched() >= WATCHED && asked.lease_writes() > 0)
        })
        .await?;
        self.clock.sleep(self.scale.quiet).await;
        self.memory("idle_memory", "idle_memory_own", operator.memory()?);
        operator.end().await?;
        self.stage.audit.read().map(drop)
    }

    /// All HostedClusters are there, and an operator begins.
    async fn converge(&mut self) -> Result<(OperatorProcess, Converged), Failed> {
        self.stage.make_clusters(&self.fleet, 0..self.scale.clusters).await?;
        self.stage.audit.read()?;
        let begin = self.clock.now();
        let mut operator = self.stage.start_operator()?;
        let asked = self.until_settled(&mut operator, self.scale.clusters).await?;
        let took = seconds(begin, &asked)?;
        let converged = Converged { took, processor_time: operator.processor_time()?, asked };
        note(&converged.asked.lines().join("\n"));
        note(&format!(
            "operator: {:.0} writes/s of {} clusters",
            converged.rate(),
            self.scale.clusters
        ));
        Ok((operator, converged))
    }

    /// What is asked though nothing changes.
    async fn settled(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let before = Holdings::fetch(&self.stage.client).await?;
        let (found, all) = (before.len(), self.objects_of(self.scale.clusters));
        if found != all {
            return Err(format!("{found} objects, and there should be {all}").into());
        }
        self.stage.audit.read()?;
        let begin = self.clock.monotonic();
        self.clock.sleep(self.scale.window).await;
        let asked = self.stage.audit.read()?;
        let minutes = self.clock.monotonic().saturating_sub(begin).as_secs_f64() / 60.0;
        operator.expect_alive()?;
        self.sheet.ours("settled_writes", "writes/min", float(asked.writes()) / minutes);
        let leases = float(asked.lease_writes()) / minutes;
        self.sheet.ours("settled_lease_writes", "writes/min", leases);
        self.sheet.ours("settled_requests", "requests/min", float(asked.requests()) / minutes);
        note(&asked.lines().join("\n"));
        self.memory("settled_memory", "settled_memory_own", operator.memory()?);
        let changed = before.changed(&Holdings::fetch(&self.stage.client).await?);
        expect("changed though nothing did", &changed, &BTreeSet::new())
    }

    /// One secret has another name.
    async fn one_change(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let before = Holdings::fetch(&self.stage.client).await?;
        let number = self.scale.clusters / 2;
        let name = fleet::name(number);
        let disk = json!({"credentialsSecretName": format!("{name}-other-disk")});
        let patch = json!({"spec": {"platform": {"azure": {"azureAuthenticationConfig": {
            "managedIdentities": {"controlPlane": {"disk": disk}},
        }}}}});
        self.stage.audit.read()?;
        let begin = self.clock.now();
        let parameters = PatchParams::default();
        self.stage.clusters().patch(&name, &parameters, &Patch::Merge(patch)).await?;
        let asked = self.until_settled(operator, self.scale.clusters).await?;
        let took = seconds(begin, &asked)?;
        let changed = before.changed(&Holdings::fetch(&self.stage.client).await?);
        let room = fleet::room(number);
        let affected = BTreeSet::from([
            format!("HostedCluster {}/{name}", fleet::NAMESPACE),
            format!("HostedClusterIdentities {}/{name}", fleet::NAMESPACE),
            format!("HostedControlPlane {room}/{name}"),
            format!("SecretProviderClass {room}/managed-azure-disk-csi"),
            format!("Secret {room}/azure-disk-csi-config"),
            format!("Deployment {room}/azure-disk-csi-driver-controller"),
        ]);
        expect("changed by one secret's name", &changed, &affected)?;
        self.sheet.ours("changed_by_one_name", "objects", float(changed.len()));
        self.sheet.ours("unaffected_by_one_name", "objects", float(before.len() - changed.len()));
        self.sheet.ours("one_name_time", "ms", took * 1_000.0);
        self.sheet.ours("one_name_writes", "writes", float(asked.writes()));
        Ok(())
    }

    /// HostedClusters that come while the operator runs.
    async fn arrivals(&mut self, operator: &mut OperatorProcess) -> Result<(), Failed> {
        let more = (self.scale.clusters / 5).max(1);
        self.stage.audit.read()?;
        let begin = self.clock.now();
        let numbers = self.scale.clusters..self.scale.clusters + more;
        self.stage.make_clusters(&self.fleet, numbers).await?;
        let asked = self.until_settled(operator, self.scale.clusters + more).await?;
        // They are writes, too, at the same time.
        let writes = float(asked.writes()) + float(more);
        self.sheet.ours("arrival_rate", "writes/s", writes / seconds(begin, &asked)?);
        Ok(())
    }

    /// Waits until something was written, then nothing for a while, and so many clusters have
    /// everything: a server that holds its breath is quiet, too. Returns what was asked.
    async fn until_settled(
        &mut self,
        operator: &mut OperatorProcess,
        clusters: usize,
    ) -> Result<Tally, Failed> {
        let mut asked = Tally::default();
        let all = self.objects_of(clusters);
        for _ in 0..MOST_PAUSES {
            self.until_quiet(operator, &mut asked).await?;
            let has_all = Holdings::fetch(&self.stage.client).await?.len() >= all;
            let meanwhile = self.stage.audit.read()?;
            let is_quiet = meanwhile.writes() == 0;
            asked.add(meanwhile);
            if has_all && is_quiet {
                return Ok(asked);
            }
        }
        Err(format!(
            "{MOST_PAUSES} times it was quiet for a while, and then there was more to write or \
             some of {all} objects were missing"
        )
        .into())
    }

    /// How many objects so many clusters come to, their HostedClusters included.
    fn objects_of(&self, clusters: usize) -> usize {
        (self.script.objects() + 1) * clusters
    }

    /// Waits until something was written and then nothing for a while.
    async fn until_quiet(
        &mut self,
        operator: &mut OperatorProcess,
        asked: &mut Tally,
    ) -> Result<(), Failed> {
        let mut quiet_since = self.clock.monotonic();
        self.until(operator, "all is settled", PATIENCE, |run| {
            let new = run.stage.audit.read()?;
            let now = run.clock.monotonic();
            if new.writes() > 0 {
                quiet_since = now;
            }
            asked.add(new);
            let quiet = now.saturating_sub(quiet_since);
            Ok(asked.writes() > 0 && quiet >= run.scale.quiet)
        })
        .await
    }

    async fn until(
        &mut self,
        operator: &mut OperatorProcess,
        what: &str,
        patience: Duration,
        mut is_so: impl FnMut(&mut Self) -> Result<bool, Failed>,
    ) -> Result<(), Failed> {
        let deadline = self.clock.monotonic() + patience;
        while !is_so(self)? {
            operator.expect_alive()?;
            if self.clock.monotonic() > deadline {
                return Err(format!("after {} s: not so: {what}", patience.as_secs()).into());
            }
            self.clock.sleep(GLANCE).await;
        }
        Ok(())
    }

    fn memory(&mut self, resident: &'static str, own: &'static str, memory: Memory) {
        self.sheet.ours(resident, "MiB", memory.resident);
        self.sheet.ours(own, "MiB", memory.own);
    }
}

/// From a time to the last write.
fn seconds(begin: Timestamp, asked: &Tally) -> Result<f64, Failed> {
    let last = asked.last_write().ok_or("nothing was written")?;
    Ok(last.duration_since(begin).as_secs_f64())
}

fn expect(what: &str, is: &BTreeSet<String>, should: &BTreeSet<String>) -> Result<(), Failed> {
    if is == should {
        return Ok(());
    }
    let more: Vec<_> = is.difference(should).take(LISTED).collect();
    let less: Vec<_> = should.difference(is).take(LISTED).collect();
    Err(format!("{what}: {} objects; not expected: {more:?}; missing: {less:?}", is.len()).into())
}

/// Nobody has to hear this for the work to go on.
pub(super) fn note(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap_or_default();
}

/// How many kinds an operator watches.
const WATCHED: usize = 13;
const PATIENCE: Duration = Duration::from_mins(30);
/// How often everything may be quiet before all is made.
const MOST_PAUSES: usize = 60;
/// How often the audit log is read.
const GLANCE: Duration = Duration::from_secs(1);
/// How many objects are named that should not be.
const LISTED: usize = 20;
