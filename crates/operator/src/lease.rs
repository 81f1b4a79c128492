//! Several replicas, of which one at a time writes about a cluster.
//!
//! The clusters are divided into shards, and for each shard there is one `Lease`. A replica takes
//! free ones up to its share, renews them, and gives back what is more than its share when another
//! replica comes. Every write is fenced by the time that is left.
//!
//! What a shard is depends on how many there are, so that number is in the names of the leases. While
//! it is being changed replicas with both numbers live side by side, and a cluster is in two shards:
//! so nobody takes a shard while one of another division is held, and who took one looks once more
//! before it leads. Of two that took at the same time at least one sees the other.

mod election;
mod tenure;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use lanyard_clock::SharedClock;
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};
use lanyard_vocabulary::causes;
use serde_json::{Value, json};

use election::{Act, Record, Sightings, Situation, decide};
pub(crate) use tenure::{Fence, Tenures};

/// How leases are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Where the leases are: the namespace of the operator.
    pub namespace: String,
    /// What their names begin with, and the value of the label `lanyard.dev/lease-of`.
    pub name: String,
    /// Who we are: part of a name, and no other process ever had it.
    pub identity: String,
    /// How many shards there are. While replicas that were told another number hold some, this one
    /// takes none.
    pub shards: u32,
    /// How long a lease lasts without renewal.
    pub duration: Duration,
}

/// The label of the leases of one operator.
const LEASE_LABEL: &str = "lanyard.dev/lease-of";

/// Takes part in the election.
#[derive(Debug)]
pub(crate) struct Candidate {
    api: KubernetesApi,
    leases: Api<Lease>,
    settings: LeaseSettings,
    tenures: Tenures,
    sightings: Sightings,
    /// Whether replicas with another number of shards are waited for.
    waits_for_rivals: bool,
}

/// A shard whose lease is ours, and which is not led yet.
#[derive(Debug, Clone, Copy)]
struct Claimed {
    shard: u32,
    until: Duration,
}

impl Candidate {
    pub(crate) fn new(api: KubernetesApi, settings: LeaseSettings, tenures: Tenures) -> Self {
        let leases = Api::namespaced(api.client().clone(), &settings.namespace);
        let sightings = Sightings::default();
        Self { api, leases, settings, tenures, sightings, waits_for_rivals: false }
    }

    /// Holds its share until the end, and gives it back then.
    pub(crate) async fn run(mut self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            let is_good = self.tick().await;
            let pause = self.settings.duration / if is_good { 3 } else { 10 };
            // Replicas that began together do not come together for ever.
            let pause = pause.mul_f64(0.9 + fastrand::f64() / 10.0);
            tokio::select! {
                () = self.clock().sleep(pause) => {}
                () = &mut end => break,
            }
        }
        for shard in 0..self.settings.shards {
            if self.is_ours(shard) {
                let retired = self.retire(shard).await;
                Self::tell(retired);
            }
        }
        if self.settings.shards > 1 {
            Self::tell(self.delete(&self.replica_name(), None).await);
        }
    }

    /// One look and what follows from it. Tells whether all went well.
    async fn tick(&mut self) -> bool {
        let looked = self.look().await;
        let mut is_good = Self::tell(looked);
        let is_seen = is_good;
        if self.settings.shards > 1 {
            let renewed = self.renew_presence().await;
            is_good &= Self::tell(renewed);
        }
        let now = self.clock().monotonic();
        let (prefix, me) = (self.replica_prefix(), self.replica_name());
        let others = self.sightings.held(&prefix, now);
        let others = others.into_iter().filter(|name| *name != me).count();
        let situation = Situation {
            me: &self.settings.identity,
            shards: self.settings.shards,
            replicas: u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1),
            has_rivals: !self.rivals().is_empty(),
            now,
        };
        let acts = decide(&self.sightings, |shard| self.shard_name(shard), situation);
        self.tell_of_rivals();
        let mut claimed = Vec::new();
        for act in acts {
            let done = match act {
                Act::Release(shard) => self.release(shard).await,
                // What was not seen just now is not known to be free.
                Act::Take(_) if !is_good => Ok(()),
                Act::Renew(shard) | Act::Take(shard) => match self.hold(shard).await {
                    Ok(news) => {
                        claimed.extend(news);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            is_good &= Self::tell(done);
        }
        if !claimed.is_empty() {
            let led = self.lead(&claimed).await;
            is_good &= Self::tell(led);
        }
        if is_seen {
            self.tenures.decided();
        }
        is_good
    }

    async fn look(&mut self) -> Result<(), ApiError> {
        let selector = format!("{LEASE_LABEL}={}", self.settings.name);
        let parameters = ListParams::default().labels(&selector);
        let list = || self.leases.list(&parameters);
        let leases = self.api.call(PATIENCE, "list the leases of the operator", list).await?;
        let records = leases.items.into_iter().filter_map(record_of).collect();
        let now = self.clock().monotonic();
        self.sightings.look(records, now);
        for shard in 0..self.settings.shards {
            if !self.is_ours(shard) {
                self.tenures.end(shard);
            }
        }
        let replicas = self.sightings.abandoned(&self.name("replica-"), FORGET_AFTER, now);
        let shards = self.sightings.abandoned(&self.name("shard-"), FORGET_AFTER, now);
        let others = shards.into_iter().filter(|name| !self.is_of_our_division(name));
        for name in replicas.into_iter().chain(others) {
            self.delete(&name, None).await?;
        }
        Ok(())
    }

    /// Takes or renews a shard. Our time counts from before we asked. One that was led until the
    /// answer came is led on; any other is only claimed.
    async fn hold(&mut self, shard: u32) -> Result<Option<Claimed>, ApiError> {
        let until = self.clock().monotonic().saturating_add(self.settings.duration);
        self.write(&self.shard_name(shard), true).await?;
        if !self.tenures.leads(shard) {
            return Ok(Some(Claimed { shard, until }));
        }
        self.tenures.extend(shard, until);
        Ok(None)
    }

    /// Leads what was claimed, unless a rival claimed something meanwhile: then it is given back.
    async fn lead(&mut self, claimed: &[Claimed]) -> Result<(), ApiError> {
        self.look().await?;
        let is_contested = !self.rivals().is_empty();
        for Claimed { shard, until } in claimed {
            if is_contested {
                self.write(&self.shard_name(*shard), false).await?;
            } else if self.is_ours(*shard) {
                self.tenures.extend(*shard, *until);
            }
        }
        Ok(())
    }

    /// The leases of shards of another division that somebody holds.
    fn rivals(&self) -> Vec<&str> {
        let held = self.sightings.held(&self.name("shard-"), self.clock().monotonic());
        held.into_iter().filter(|name| !self.is_of_our_division(name)).collect()
    }

    fn tell_of_rivals(&mut self) {
        let rivals = self.rivals().join(", ");
        let waits = !rivals.is_empty();
        if waits && !self.waits_for_rivals {
            tracing::warn!(
                hint = "nothing, while a change of --shards rolls out; otherwise give all replicas the same number",
                "replicas with another number of shards hold {rivals}: no shard is taken before they end"
            );
        }
        self.waits_for_rivals = waits;
    }

    /// Stops writing about a shard, and then lets it go.
    async fn release(&mut self, shard: u32) -> Result<(), ApiError> {
        self.tenures.end(shard);
        for _ in 0..DRAIN_LOOKS {
            if self.tenures.writes(shard) == 0 {
                return self.write(&self.shard_name(shard), false).await;
            }
            self.clock().sleep(DRAIN_PAUSE).await;
        }
        // It ends by itself, after the last write that may be on its way.
        Ok(())
    }

    /// Lets a shard go for good: the lease goes too, unless somebody has taken it meanwhile.
    async fn retire(&mut self, shard: u32) -> Result<(), ApiError> {
        self.release(shard).await?;
        let name = self.shard_name(shard);
        let free = self.sightings.record(&name).filter(|record| record.holder.is_none());
        let Some(version) = free.map(|record| record.version.clone()) else { return Ok(()) };
        self.delete(&name, Some(version)).await
    }

    async fn renew_presence(&mut self) -> Result<(), ApiError> {
        let name = self.replica_name();
        self.write(&name, true).await
    }

    async fn write(&mut self, name: &str, held: bool) -> Result<(), ApiError> {
        let now = MicroTime(self.clock().now());
        let identity = held.then(|| self.settings.identity.clone());
        let written = match self.sightings.record(name) {
            Some(record) => {
                let is_new = record.holder != identity;
                let patch = patch_of(record, identity, &now, is_new, self.settings.duration);
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
                let patch = || self.leases.patch(name, &parameters, &patch);
                self.api.call(PATIENCE, format!("renew lease {name}"), patch).await?
            }
            None if !held => return Ok(()),
            None => {
                let (parameters, lease) = (PostParams::default(), self.lease(name, now));
                let create = || self.leases.create(&parameters, &lease);
                self.api.call(PATIENCE, format!("create lease {name}"), create).await?
            }
        };
        if let Some((name, record)) = record_of(written) {
            self.sightings.note(name, record, self.api.clock().monotonic());
        }
        Ok(())
    }

    fn lease(&self, name: &str, now: MicroTime) -> Lease {
        let labels = BTreeMap::from([(LEASE_LABEL.to_owned(), self.settings.name.clone())]);
        Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.settings.identity.clone()),
                lease_duration_seconds: i32::try_from(self.settings.duration.as_secs()).ok(),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }

    async fn delete(&self, name: &str, version: Option<String>) -> Result<(), ApiError> {
        let preconditions =
            version.map(|version| Preconditions { resource_version: Some(version), uid: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let delete = || self.leases.delete(name, &parameters);
        let deleted = self.api.find(PATIENCE, format!("delete lease {name}"), delete).await;
        deleted.map(drop)
    }

    fn is_ours(&self, shard: u32) -> bool {
        let record = self.sightings.record(&self.shard_name(shard));
        record.is_some_and(|it| it.holder.as_deref() == Some(&self.settings.identity))
    }

    fn name(&self, rest: &str) -> String {
        format!("{}-{rest}", self.settings.name)
    }

    fn shard_name(&self, shard: u32) -> String {
        self.name(&format!("shard-{shard}{}", self.division()))
    }

    /// How the names of our shards end.
    fn division(&self) -> String {
        format!("-of-{}", self.settings.shards)
    }

    fn is_of_our_division(&self, shard_name: &str) -> bool {
        shard_name.ends_with(&self.division())
    }

    /// How the names of replicas begin that divide the clusters as we do.
    fn replica_prefix(&self) -> String {
        self.name(&format!("replica{}-", self.division()))
    }

    fn replica_name(&self) -> String {
        format!("{}{}", self.replica_prefix(), self.settings.identity)
    }

    const fn clock(&self) -> &SharedClock {
        self.api.clock()
    }

    /// A lost race is ordinary.
    fn tell(done: Result<(), ApiError>) -> bool {
        match &done {
            Ok(()) => {}
            Err(ApiError::Refused { status: 409, .. }) => {
                tracing::debug!("a lease changed meanwhile");
            }
            Err(error) => tracing::warn!(hint = error.hint(), "{}", causes(error)),
        }
        done.is_ok()
    }
}

fn record_of(lease: Lease) -> Option<(String, Record)> {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
    let record = Record {
        holder: spec.holder_identity.filter(|it| !it.is_empty()),
        duration: Duration::from_secs(seconds.unwrap_or_default()),
        version: lease.metadata.resource_version?,
    };
    Some((lease.metadata.name?, record))
}

/// The change of the lease that was seen, and of no later one.
fn patch_of(
    record: &Record,
    identity: Option<String>,
    now: &MicroTime,
    is_new: bool,
    duration: Duration,
) -> Value {
    let mut spec = json!({
        "holderIdentity": identity,
        "renewTime": now,
        "leaseDurationSeconds": duration.as_secs(),
    });
    if is_new {
        spec["acquireTime"] = json!(now);
    }
    json!({"metadata": {"resourceVersion": record.version}, "spec": spec})
}

/// A renewal must come in time for another try.
const PATIENCE: Patience = Patience { deadline: Duration::from_secs(4), tries: 1 };
/// How long writes on their way are waited for before a shard is let go.
const DRAIN_LOOKS: u32 = 200;
const DRAIN_PAUSE: Duration = Duration::from_millis(50);
/// After how long the lease of a replica that is gone is deleted.
const FORGET_AFTER: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
