//! Reads the objects that a HostedCluster refers to and that its control plane needs as copies.
//!
//! They are read by name: the operator watches no Secret that it did not create. A reconciliation reads them
//! after a change of a reference or of a copy, and otherwise if the last read is older than [`MAX_READ_AGE`].
//! Between the reads, the operator keeps a digest of the copies and no value.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures::future::join_all;
use kube::api::ListParams;
use lanyard_clock::RetryClass;
use lanyard_desired::objects::{
    ControlPlaneOwner, ReferencedObject, ReferencedValue, ReferencedValues,
};
use lanyard_desired::{ObjectKey, ProblemSeverity, ValidationProblem};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};
use serde_json::Value;

use crate::classification::ValidCluster;
use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::observe::ObservedCluster;
use crate::store::DesiredDigests;
use crate::watched_resource::{WatchedResource, name_selector};

/// The age from which a read is repeated, although nothing changed that the operator watches.
const MAX_READ_AGE: Duration = Duration::from_mins(1);

/// The same while an object is missing. Reconciliations follow every 30 s, and each reads again.
const MISSING_SOURCE_READ_AGE: Duration = Duration::from_secs(25);

/// The last read of each cluster.
#[derive(Debug, Default)]
pub(crate) struct ReferenceReads(HashMap<ClusterKey, ReferenceRead>);

/// What is known of the last read of one cluster.
#[derive(Debug, Clone)]
struct ReferenceRead {
    /// The time of the read, on the monotonic clock.
    at: Duration,
    /// The names of the referenced objects.
    sources: Vec<(ReferencedObject, String)>,
    /// The digests of the copies with the read values.
    digests: DesiredDigests,
    /// The copies whose source has no value.
    kept_copies: BTreeSet<ObjectKey>,
    /// The sources without a value.
    lints: Vec<ValidationProblem>,
}

impl ReferenceRead {
    /// Whether the HostedCluster has the same references, and the copies have the read values.
    fn is_valid(
        &self,
        context: &ReconcileContext,
        observed: &ObservedCluster,
        valid: &ValidCluster,
    ) -> bool {
        self.sources == source_names(valid)
            && context.stores.are_in_sync(&observed.namespace, &self.digests)
    }

    fn references(&self) -> ReadReferences {
        ReadReferences {
            in_sync_digests: self.digests.clone(),
            kept_copies: self.kept_copies.clone(),
            lints: self.lints.clone(),
            ..ReadReferences::default()
        }
    }
}

impl ReferenceReads {
    pub(crate) fn forget(&mut self, key: &ClusterKey) {
        self.0.remove(key);
    }

    pub(crate) fn retain(&mut self, keeps: impl Fn(&ClusterKey) -> bool) {
        self.0.retain(|key, _| keeps(key));
    }
}

/// The referenced objects of one cluster.
#[derive(Debug, Default)]
pub(crate) struct ReadReferences {
    pub(crate) values: ReferencedValues,
    /// The digests of copies that are in sync with their last read, instead of their values.
    pub(crate) in_sync_digests: DesiredDigests,
    /// The copies whose source has no value now; they stay unchanged.
    pub(crate) kept_copies: BTreeSet<ObjectKey>,
    /// The sources without a value.
    pub(crate) lints: Vec<ValidationProblem>,
    pub(crate) errors: Vec<ApiError>,
}

/// The result of the last read, if it is recent and its copies are in sync.
pub(crate) fn recent_references(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
) -> Option<ReadReferences> {
    let reads = context.reference_reads.lock();
    let read = reads.0.get(&observed.key).filter(|read| read.is_valid(context, observed, valid))?;
    let age = context.api.clock().monotonic().saturating_sub(read.at);
    let max_age = if read.kept_copies.is_empty() { MAX_READ_AGE } else { MISSING_SOURCE_READ_AGE };
    (age < max_age).then(|| read.references())
}

/// Reads the objects that the HostedCluster refers to, and records the result. If the API server cannot respond now,
/// returns the result of the last read, and the next read waits as long as after a successful one: an outage of the
/// API server must not cause more requests.
pub(crate) async fn read_references(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
) -> ReadReferences {
    let references = read_sources(context, observed, valid).await;
    let mut classes = references.errors.iter().map(ApiError::retry_class);
    if references.errors.is_empty() || !classes.all(RetryClass::is_temporary) {
        return references;
    }
    let mut reads = context.reference_reads.lock();
    match reads.0.get_mut(&observed.key).filter(|read| read.is_valid(context, observed, valid)) {
        Some(read) => {
            read.at = context.api.clock().monotonic();
            read.references()
        }
        None => references,
    }
}

/// Records a read without errors, with the digests of all desired objects.
pub(crate) fn record_read(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    read: &ReadReferences,
    digests: &DesiredDigests,
) {
    if !read.errors.is_empty() || !read.in_sync_digests.is_empty() {
        return;
    }
    if observed.owner == ControlPlaneOwner::Absent {
        context.reference_reads.lock().forget(&observed.key);
        return;
    }
    let copies = read.values.keys().map(|object| object.copy_key(&observed.namespace));
    let digests: BTreeMap<_, _> = copies
        .filter_map(|copy| digests.get(&copy).map(|digest| (copy.clone(), *digest)))
        .collect();
    let read = ReferenceRead {
        at: context.api.clock().monotonic(),
        sources: source_names(valid),
        digests,
        kept_copies: read.kept_copies.clone(),
        lints: read.lints.clone(),
    };
    context.reference_reads.lock().0.insert(observed.key.clone(), read);
}

/// Reads the objects that the HostedCluster refers to. Without a control plane there is nothing to copy them
/// to.
async fn read_sources(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
) -> ReadReferences {
    let mut read = ReadReferences::default();
    if observed.owner == ControlPlaneOwner::Absent {
        return read;
    }
    let sources = source_names(valid);
    let sources = sources.iter().filter(|(object, _)| !observed.skips_kind(object.kind()));
    let reads = sources.map(|(object, name)| async move {
        (*object, name, read_source(context, observed.key.namespace(), *object, name).await)
    });
    for (object, name, source) in join_all(reads).await {
        let value = match source {
            Ok(Some(source)) => ReferencedValue::from_json(object, &source)
                .ok_or_else(|| format!("has no key `{}`", object.data_key())),
            Ok(None) => Err("does not exist".to_owned()),
            Err(error) => {
                read.kept_copies.insert(object.copy_key(&observed.namespace));
                read.errors.push(error);
                continue;
            }
        };
        match value {
            Ok(value) => {
                read.values.insert(object, value);
            }
            Err(problem) => {
                let copy = object.copy_key(&observed.namespace);
                read.lints.push(missing_value(observed, object, name, &problem, &copy));
                read.kept_copies.insert(copy);
            }
        }
    }
    read
}

/// The names of the objects that the HostedCluster refers to.
fn source_names(valid: &ValidCluster) -> Vec<(ReferencedObject, String)> {
    let name =
        |object: ReferencedObject| Some((object, object.source_name(&valid.wire)?.to_owned()));
    ReferencedObject::ALL.into_iter().filter_map(name).collect()
}

/// Reads one object with a list request, which needs no further permission.
async fn read_source(
    context: &ReconcileContext,
    namespace: &str,
    object: ReferencedObject,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    let objects = WatchedResource::owned(object.kind()).api(context.api.client(), Some(namespace));
    let parameters = ListParams::default().fields(&name_selector(name));
    let list = || objects.list(&parameters);
    let action = format!("list {} {name} of {namespace}", object.kind().info().kind);
    let found = context.api.call(ApiRetryPolicy::SINGLE_ATTEMPT, action, list).await?;
    Ok(found.items.into_iter().next().map(|object| object.data))
}

fn missing_value(
    observed: &ObservedCluster,
    object: ReferencedObject,
    name: &str,
    problem: &str,
    copy: &ObjectKey,
) -> ValidationProblem {
    let (kind, namespace) = (object.kind().info().kind, observed.key.namespace());
    ValidationProblem {
        field: format!("spec.{}.name", object.field()),
        severity: ProblemSeverity::Lint,
        message: format!("{kind} `{namespace}/{name}` {problem}; `{}` is not updated", copy.name),
        hint: Some(format!("create the {kind} with the key `{}`", object.data_key())),
    }
}
