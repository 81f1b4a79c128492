//! Whether somebody looks after HostedClusters on a server already: two operators would undo each
//! other's work on the cluster of this road, in Azure too.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};
use lanyard_operator::LEASE_LABEL;

/// Where HyperShift installs its operator.
const HYPERSHIFT: (&str, &str) = ("hypershift", "operator");
/// What the chart of lanyard's operator calls it.
const CHART: &str = "app.kubernetes.io/name=lanyard-operator";

/// A lease that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    holder: String,
    /// Every renewal has another one.
    version: String,
    lasts: Duration,
}

/// The leases that somebody holds, by namespace and name.
type Leases = BTreeMap<String, Held>;

/// What two looks at leases come to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judgement {
    /// Who held some is gone.
    Free,
    /// The holder lives.
    Held(String),
    /// It may live: a lease lasts longer than was waited.
    Unclear,
}

/// The operator that looks after HostedClusters there, if there is one: HyperShift's, or one of
/// lanyard in a Deployment or anywhere else. One that vanished with its leases is waited for until
/// these end.
pub(super) async fn find_operator(api: &KubernetesApi) -> Result<Option<String>, ApiError> {
    let client = || api.client().clone();
    let (namespace, name) = HYPERSHIFT;
    let deployments: Api<Deployment> = Api::namespaced(client(), namespace);
    let get = || deployments.get(name);
    let action = format!("read Deployment {namespace}/{name}");
    let hypershift = api.find(Patience::USUAL, action, get).await?;
    let deployments: Api<Deployment> = Api::all(client());
    let of_chart = ListParams::default().labels(CHART);
    let list = || deployments.list(&of_chart);
    let charted = api.call(Patience::USUAL, "list the Deployments of lanyard's operator", list);
    let deployments = hypershift.into_iter().chain(charted.await?.items);
    if let Some(found) = deployments.into_iter().find(is_to_run) {
        let namespace = found.namespace().unwrap_or_default();
        return Ok(Some(format!("Deployment {namespace}/{}", found.name_any())));
    }
    let clock = api.clock();
    let began = clock.monotonic();
    let first = leases(api).await?;
    let mut now = first.clone();
    loop {
        match judge(&first, &now, clock.monotonic().saturating_sub(began)) {
            Judgement::Free => return Ok(None),
            Judgement::Held(by) => return Ok(Some(by)),
            Judgement::Unclear => clock.sleep(LOOK_EVERY).await,
        }
        now = leases(api).await?;
    }
}

async fn leases(api: &KubernetesApi) -> Result<Leases, ApiError> {
    let leases: Api<Lease> = Api::all(api.client().clone());
    let of_operators = ListParams::default().labels(LEASE_LABEL);
    let list = || leases.list(&of_operators);
    let found = api.call(Patience::USUAL, "list the leases of operators", list).await?;
    Ok(found.items.iter().filter_map(held).collect())
}

fn held(lease: &Lease) -> Option<(String, Held)> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    let seconds = u64::try_from(spec.lease_duration_seconds?).unwrap_or_default();
    let name = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name_any());
    let version = lease.resource_version().unwrap_or_default();
    Some((name, Held { holder, version, lasts: Duration::from_secs(seconds) }))
}

/// What has been seen of leases. Clocks of machines are not compared: who lives renews.
fn judge(first: &Leases, now: &Leases, waited: Duration) -> Judgement {
    let told = |(name, held): (&String, &Held)| {
        Judgement::Held(format!("lease {name}, which `{}` holds", held.holder))
    };
    let lives = |(name, held): &(&String, &Held)| {
        let is_renewed = first.get(*name).is_none_or(|first| first.version != held.version);
        // Nobody waits here for so long.
        is_renewed || held.lasts > LONGEST_WAIT
    };
    if let Some(living) = now.iter().find(lives) {
        return told(living);
    }
    let is_unclear = now.values().any(|held| held.lasts >= waited);
    if is_unclear { Judgement::Unclear } else { Judgement::Free }
}

fn is_to_run(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.replicas) != Some(0)
}

/// Leases are renewed every third of their duration, which is 15 s unless somebody chose another.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Of<'a> = &'a [(&'a str, &'a str, Duration)];

    const LASTS: Duration = Duration::from_secs(15);

    fn leases(of: &[(&str, &str, Duration)]) -> Leases {
        let held = |(name, version, lasts): &(&str, &str, Duration)| {
            let (holder, version) = ("pod-1".to_owned(), (*version).to_owned());
            ((*name).to_owned(), Held { holder, version, lasts: *lasts })
        };
        of.iter().map(held).collect()
    }

    #[test]
    fn who_renews_lives_and_who_does_not_is_gone_when_the_lease_ends() {
        let held = || Judgement::Held("lease ns/shard, which `pod-1` holds".to_owned());
        let long = LONGEST_WAIT + Duration::from_secs(1);
        let second = Duration::from_secs(1);
        let cases: [(Of<'_>, Of<'_>, Duration, Judgement); 8] = [
            (&[], &[], Duration::ZERO, Judgement::Free),
            (&[("ns/shard", "1", LASTS)], &[("ns/shard", "1", LASTS)], second, Judgement::Unclear),
            (&[("ns/shard", "1", LASTS)], &[("ns/shard", "1", LASTS)], LASTS, Judgement::Unclear),
            (&[("ns/shard", "1", LASTS)], &[("ns/shard", "2", LASTS)], second, held()),
            (&[("ns/shard", "1", LASTS)], &[], second, Judgement::Free),
            (
                &[("ns/shard", "1", LASTS)],
                &[("ns/shard", "1", LASTS)],
                LASTS + second,
                Judgement::Free,
            ),
            (&[], &[("ns/shard", "1", LASTS)], second, held()),
            (&[("ns/shard", "1", long)], &[("ns/shard", "1", long)], Duration::ZERO, held()),
        ];
        for (first, now, waited, expected) in cases {
            assert_eq!(judge(&leases(first), &leases(now), waited), expected, "{first:?} {now:?}");
        }
    }

    #[test]
    fn a_lease_that_was_given_back_is_held_by_nobody() {
        let lease = |spec| {
            let metadata = json!({"name": "shard", "namespace": "ns", "resourceVersion": "7"});
            let lease = json!({"metadata": metadata, "spec": spec});
            held(&serde_json::from_value(lease).unwrap())
        };
        assert_eq!(lease(json!({"leaseDurationSeconds": 15})), None);
        assert_eq!(lease(json!({"leaseDurationSeconds": 15, "holderIdentity": ""})), None);
        let (name, held) =
            lease(json!({"leaseDurationSeconds": 15, "holderIdentity": "pod-1"})).unwrap();
        assert_eq!((name.as_str(), held.version.as_str(), held.lasts), ("ns/shard", "7", LASTS));
    }

    #[test]
    fn a_deployment_that_is_scaled_to_nothing_looks_after_nothing() {
        let is_to_run = |spec| {
            let spec = json!({"metadata": {}, "spec": spec});
            is_to_run(&serde_json::from_value(spec).unwrap())
        };
        let rest = json!({"selector": {}, "template": {}});
        let of = |replicas| {
            let mut spec = rest.clone();
            spec["replicas"] = json!(replicas);
            spec
        };
        assert!(is_to_run(of(1)) && is_to_run(rest.clone()) && !is_to_run(of(0)));
    }
}
