//! Leader election per shard: several replicas share the clusters, and one at a time writes for each.
//!
//! The clusters are divided into shards, with one `Lease` per shard. A replica acquires free leases up to
//! its share, renews them, and releases the excess when another replica joins. Every write is fenced by
//! the remaining time of the lease.
//!
//! The shard of a cluster depends on the number of shards, which is therefore part of the lease names.
//! While that number changes, replicas with both numbers run together and a cluster belongs to two shards.
//! A replica therefore acquires no shard while a lease of another shard count is held, and after an
//! acquisition it lists the leases once more before it leads. Of two replicas that acquire at the same
//! time, at least one sees the other's lease.

mod election;
mod lease_term;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use lanyard_clock::{ErrorHint as _, SharedClock, period_with_jitter};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, KubernetesApi};
use lanyard_vocabulary::format_error_chain;
use serde_json::{Value, json};

use election::{ElectionInputs, LeaseAction, LeaseRecord, ObservedLeases, plan_lease_actions};
pub(crate) use lease_term::{FencingToken, LeaseTerms};

/// The settings of the leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// The namespace of the leases: the operator's own.
    pub namespace: String,
    /// The prefix of the lease names, and the value of the label `lanyard.dev/lease-of`.
    pub name: String,
    /// The unique identity of this process, used in lease names; never reused.
    pub identity: String,
    /// The number of shards. While replicas with another number hold leases, this replica acquires none.
    pub shards: u32,
    /// The validity of a lease without renewal.
    pub duration: Duration,
}

/// The label of the leases of one operator installation.
const LEASE_LABEL: &str = "lanyard.dev/lease-of";

/// A replica that takes part in the leader election.
#[derive(Debug)]
pub(crate) struct LeaseCandidate {
    api: KubernetesApi,
    leases: Api<Lease>,
    settings: LeaseSettings,
    lease_terms: LeaseTerms,
    observed_leases: ObservedLeases,
    /// Whether this replica waits for others with a different number of shards.
    waits_for_resharding: bool,
}

/// A shard whose lease this replica acquired, but which it does not lead yet.
#[derive(Debug, Clone, Copy)]
struct AcquiredShard {
    shard: u32,
    valid_until: Duration,
}

impl LeaseCandidate {
    pub(crate) fn new(
        api: KubernetesApi,
        settings: LeaseSettings,
        lease_terms: LeaseTerms,
    ) -> Self {
        let leases = Api::namespaced(api.client().clone(), &settings.namespace);
        let observed_leases = ObservedLeases::default();
        Self { api, leases, settings, lease_terms, observed_leases, waits_for_resharding: false }
    }

    /// Takes part in the election until `end` resolves, then releases and deletes its leases.
    pub(crate) async fn run(mut self, end: impl Future<Output = ()>) {
        let mut end = std::pin::pin!(end);
        loop {
            let is_ok = self.run_election_round().await;
            let pause = self.settings.duration / if is_ok { 3 } else { 10 };
            let pause = period_with_jitter(pause, fastrand::f64());
            tokio::select! {
                () = self.clock().sleep(pause) => {}
                () = &mut end => break,
            }
        }
        for shard in 0..self.settings.shards {
            if self.is_held_here(shard) {
                let retired = self.release_and_delete_shard(shard).await;
                Self::log_result(retired);
            }
        }
        if self.settings.shards > 1 {
            Self::log_result(self.delete_lease(&self.replica_lease_name(), None).await);
        }
    }

    /// Lists the leases, and renews, acquires and releases shards. Returns whether all requests succeeded.
    async fn run_election_round(&mut self) -> bool {
        let refreshed = self.refresh_leases().await;
        let mut is_ok = Self::log_result(refreshed);
        let is_seen = is_ok;
        if self.settings.shards > 1 {
            let renewed = self.renew_replica_lease().await;
            is_ok &= Self::log_result(renewed);
        }
        let now = self.clock().monotonic();
        let (prefix, own_name) = (self.replica_lease_prefix(), self.replica_lease_name());
        let others = self.observed_leases.held_leases(&prefix, now);
        let others = others.into_iter().filter(|name| *name != own_name).count();
        let situation = ElectionInputs {
            identity: &self.settings.identity,
            shards: self.settings.shards,
            replicas: u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1),
            is_resharding: !self.mismatched_shard_leases().is_empty(),
            now,
        };
        let actions = plan_lease_actions(
            &self.observed_leases,
            |shard| self.shard_lease_name(shard),
            situation,
        );
        self.log_mismatched_shards();
        let mut acquired = Vec::new();
        for action in actions {
            let done = match action {
                LeaseAction::Release(shard) => self.release_shard(shard).await,
                // Without a successful list the lease is not known to be free.
                LeaseAction::Acquire(_) if !is_ok => Ok(()),
                LeaseAction::Renew(shard) | LeaseAction::Acquire(shard) => {
                    match self.acquire_or_renew(shard).await {
                        Ok(shard) => {
                            acquired.extend(shard);
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            is_ok &= Self::log_result(done);
        }
        if !acquired.is_empty() {
            let led = self.start_leading(&acquired).await;
            is_ok &= Self::log_result(led);
        }
        if is_seen {
            self.lease_terms.mark_election_complete();
        }
        is_ok
    }

    async fn refresh_leases(&mut self) -> Result<(), ApiError> {
        let selector = format!("{LEASE_LABEL}={}", self.settings.name);
        let parameters = ListParams::default().labels(&selector);
        let list = || self.leases.list(&parameters);
        let leases =
            self.api.call(LEASE_RETRY_POLICY, "list the leases of the operator", list).await?;
        let records = leases.items.into_iter().filter_map(lease_record).collect();
        let now = self.clock().monotonic();
        self.observed_leases.observe_all(records, now);
        for shard in 0..self.settings.shards {
            if !self.is_held_here(shard) {
                self.lease_terms.stop_leading(shard);
            }
        }
        let replicas = self.observed_leases.stale_leases(
            &self.lease_name("replica-"),
            STALE_LEASE_RETENTION,
            now,
        );
        let shards = self.observed_leases.stale_leases(
            &self.lease_name("shard-"),
            STALE_LEASE_RETENTION,
            now,
        );
        let others = shards.into_iter().filter(|name| !self.has_our_shard_count(name));
        for name in replicas.into_iter().chain(others) {
            self.delete_lease(&name, None).await?;
        }
        Ok(())
    }

    /// Acquires or renews a shard. Its validity counts from before the request. A shard that this replica
    /// leads until the response is led further; any other is returned as acquired, but not led yet.
    async fn acquire_or_renew(&mut self, shard: u32) -> Result<Option<AcquiredShard>, ApiError> {
        let valid_until = self.clock().monotonic().saturating_add(self.settings.duration);
        self.write_lease(&self.shard_lease_name(shard), true).await?;
        if !self.lease_terms.is_leading(shard) {
            return Ok(Some(AcquiredShard { shard, valid_until }));
        }
        self.lease_terms.lead_until(shard, valid_until);
        Ok(None)
    }

    /// Leads the acquired shards, unless a replica with another shard count acquired one meanwhile: then
    /// they are released.
    async fn start_leading(&mut self, acquired: &[AcquiredShard]) -> Result<(), ApiError> {
        self.refresh_leases().await?;
        let is_conflicting = !self.mismatched_shard_leases().is_empty();
        for AcquiredShard { shard, valid_until } in acquired {
            if is_conflicting {
                self.write_lease(&self.shard_lease_name(*shard), false).await?;
            } else if self.is_held_here(*shard) {
                self.lease_terms.lead_until(*shard, *valid_until);
            }
        }
        Ok(())
    }

    /// The held leases of shards with another shard count.
    fn mismatched_shard_leases(&self) -> Vec<&str> {
        let held_names =
            self.observed_leases.held_leases(&self.lease_name("shard-"), self.clock().monotonic());
        held_names.into_iter().filter(|name| !self.has_our_shard_count(name)).collect()
    }

    fn log_mismatched_shards(&mut self) {
        let mismatched = self.mismatched_shard_leases().join(", ");
        let waits = !mismatched.is_empty();
        if waits && !self.waits_for_resharding {
            tracing::warn!(
                hint = "no action while a change of `--shards` rolls out; otherwise set the same \
                        number for all replicas",
                "replicas with another number of shards hold {mismatched}: acquiring no shard \
                 until these leases end"
            );
        }
        self.waits_for_resharding = waits;
    }

    /// Stops the writes of a shard, and then releases its lease.
    async fn release_shard(&mut self, shard: u32) -> Result<(), ApiError> {
        self.lease_terms.stop_leading(shard);
        for _ in 0..DRAIN_POLLS {
            if self.lease_terms.pending_write_count(shard) == 0 {
                return self.write_lease(&self.shard_lease_name(shard), false).await;
            }
            self.clock().sleep(DRAIN_POLL_INTERVAL).await;
        }
        // A write is still pending: let the lease expire instead.
        Ok(())
    }

    /// Releases a shard and deletes its lease, unless another replica has acquired it meanwhile.
    async fn release_and_delete_shard(&mut self, shard: u32) -> Result<(), ApiError> {
        self.release_shard(shard).await?;
        let name = self.shard_lease_name(shard);
        let free =
            self.observed_leases.latest_record(&name).filter(|record| record.holder.is_none());
        let Some(version) = free.map(|record| record.version.clone()) else { return Ok(()) };
        self.delete_lease(&name, Some(version)).await
    }

    async fn renew_replica_lease(&mut self) -> Result<(), ApiError> {
        let name = self.replica_lease_name();
        self.write_lease(&name, true).await
    }

    async fn write_lease(&mut self, name: &str, is_held: bool) -> Result<(), ApiError> {
        let now = MicroTime(self.clock().now());
        let identity = is_held.then(|| self.settings.identity.clone());
        let written = match self.observed_leases.latest_record(name) {
            Some(record) => {
                let is_new = record.holder != identity;
                let patch = renewal_patch(record, identity, &now, is_new, self.settings.duration);
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
                let patch = || self.leases.patch(name, &parameters, &patch);
                self.api.call(LEASE_RETRY_POLICY, format!("renew lease {name}"), patch).await?
            }
            None if !is_held => return Ok(()),
            None => {
                let (parameters, lease) = (PostParams::default(), self.new_lease(name, now));
                let create = || self.leases.create(&parameters, &lease);
                self.api.call(LEASE_RETRY_POLICY, format!("create lease {name}"), create).await?
            }
        };
        if let Some((name, record)) = lease_record(written) {
            self.observed_leases.observe(name, record, self.api.clock().monotonic());
        }
        Ok(())
    }

    fn new_lease(&self, name: &str, now: MicroTime) -> Lease {
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

    async fn delete_lease(&self, name: &str, version: Option<String>) -> Result<(), ApiError> {
        let preconditions =
            version.map(|version| Preconditions { resource_version: Some(version), uid: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        let delete = || self.leases.delete(name, &parameters);
        let deleted = self
            .api
            .call_optional(LEASE_RETRY_POLICY, format!("delete lease {name}"), delete)
            .await;
        deleted.map(drop)
    }

    fn is_held_here(&self, shard: u32) -> bool {
        let record = self.observed_leases.latest_record(&self.shard_lease_name(shard));
        record.is_some_and(|it| it.holder.as_deref() == Some(&self.settings.identity))
    }

    fn lease_name(&self, rest: &str) -> String {
        format!("{}-{rest}", self.settings.name)
    }

    fn shard_lease_name(&self, shard: u32) -> String {
        self.lease_name(&format!("shard-{shard}{}", self.shard_count_suffix()))
    }

    /// The suffix of the shard lease names of this shard count.
    fn shard_count_suffix(&self) -> String {
        format!("-of-{}", self.settings.shards)
    }

    fn has_our_shard_count(&self, shard_name: &str) -> bool {
        shard_name.ends_with(&self.shard_count_suffix())
    }

    /// The prefix of the lease names of replicas with this shard count.
    fn replica_lease_prefix(&self) -> String {
        self.lease_name(&format!("replica{}-", self.shard_count_suffix()))
    }

    fn replica_lease_name(&self) -> String {
        format!("{}{}", self.replica_lease_prefix(), self.settings.identity)
    }

    const fn clock(&self) -> &SharedClock {
        self.api.clock()
    }

    /// Logs an error, and returns whether there was none. A conflict is logged at debug level, because it is
    /// part of normal operation.
    fn log_result(result: Result<(), ApiError>) -> bool {
        match &result {
            Ok(()) => {}
            Err(ApiError::Refused { status: 409, .. }) => {
                tracing::debug!("a lease changed meanwhile");
            }
            Err(error) => {
                tracing::warn!(hint = error.hint().as_deref(), "{}", format_error_chain(error));
            }
        }
        result.is_ok()
    }
}

fn lease_record(lease: Lease) -> Option<(String, LeaseRecord)> {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
    let record = LeaseRecord {
        holder: spec.holder_identity.filter(|it| !it.is_empty()),
        duration: Duration::from_secs(seconds.unwrap_or_default()),
        version: lease.metadata.resource_version?,
    };
    Some((lease.metadata.name?, record))
}

/// A patch for the observed version of a lease; it conflicts with any later version.
fn renewal_patch(
    record: &LeaseRecord,
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

/// Short enough that a failed renewal can be repeated before the lease ends.
const LEASE_RETRY_POLICY: ApiRetryPolicy =
    ApiRetryPolicy { attempt_timeout: Duration::from_secs(4), attempts: 1 };
/// How often a release polls for pending writes.
const DRAIN_POLLS: u32 = 200;
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long an expired lease is retained before it is deleted.
const STALE_LEASE_RETENTION: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
