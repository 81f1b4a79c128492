//! What the API server tells about the way of one component, hop by hop. Pure.
//!
//! | hop | told by |
//! |---|---|
//! | `hostedcluster`, `spc` | the class that the operator made |
//! | `volume` | the pods of the component's consumers |
//! | `imds-token` to `file` | the node plugin: pod status and volume facts; an event where a volume cannot be mounted |
//! | `credential` to `granted` | the canary: the annotation of its pod |
//! | the verdict | the operator: HostedClusterIdentities |

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_desired::ValidatedHostedCluster;
use lanyard_desired::status::{FALSE, Facts, ObservedPod, ObservedVolume, TRUE};
use lanyard_kubernetes::ApiError;
use lanyard_vocabulary::{Component, Consumer, Healing, Hop, OutcomeCode};

use crate::report::Failure;

/// What stands on the API server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) cluster: &'a ValidatedHostedCluster,
    pub(super) component: Component,
    pub(super) server: &'a str,
    pub(super) class: Option<&'a SecretProviderClass>,
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) volumes: &'a [Arc<SecretProviderClassPodStatus>],
    pub(super) events: &'a [Arc<Event>],
    /// The Deployments whose pods were refused, and why.
    pub(super) refusals: &'a [(&'static str, String)],
    /// What may not be followed: nobody knows here what stands there of it.
    pub(super) unseen: &'a [ApiError],
    pub(super) identity: Option<&'a IdentityStatus>,
}

/// How far a component came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// The hops that are good, in walking order, and what is known about each.
    pub(super) good: Vec<(Hop, String)>,
    /// What is wrong.
    pub(super) failure: Option<(Hop, Failure)>,
    /// Whether nothing more is to be expected.
    pub(super) is_settled: bool,
}

/// The pod of a consumer and its volume.
#[derive(Debug)]
struct Mounting {
    consumer: &'static Consumer,
    pod: ObservedPod,
    mount_path: String,
    volume: Option<ObservedVolume>,
}

impl Told<'_> {
    /// How far the component came.
    pub(super) fn account(&self) -> Account {
        let mut account = Account::default();
        let mountings = self.mountings();
        self.objects(&mountings, &mut account);
        mounted(&mountings, &mut account);
        proven(&mountings, &mut account);
        account.failure = self.failure(&mountings, &account);
        let last = account.good.last().map(|(hop, _)| *hop);
        let is_ready = self.identity.is_some_and(|identity| identity.ready == TRUE);
        account.is_settled = account.failure.is_some() || (is_ready && last == Some(Hop::Granted));
        if let Some((failed, _)) = &account.failure {
            let failed = *failed;
            account.good.retain(|(hop, _)| *hop < failed);
            // Whoever tells of a hop has those before it behind it.
            let from = account.good.len();
            let passed = Hop::ALL.into_iter().skip(from).take_while(|hop| *hop < failed);
            account.good.extend(passed.map(|hop| (hop, format!("`{failed}` was reached"))));
        }
        account
    }

    /// What is to be said where nothing settled it in time: the first hop that nobody tells of.
    pub(super) fn overdue(&self, account: &Account, waited: u64) -> (Hop, Failure) {
        let last = account.good.last().map(|(hop, _)| *hop);
        let hop = Hop::ALL.into_iter().find(|hop| Some(*hop) > last).unwrap_or(Hop::Granted);
        let operator = match self.identity {
            None => "the operator told nothing".to_owned(),
            Some(it) => format!("the operator says {} {}: {}", it.ready, it.reason, it.message),
        };
        let events = self.warnings(&self.mountings()).into_iter();
        let event = events.last().map(|(pod, _, text)| format!("; an event of pod {pod}: {text}"));
        let mut detail = format!("nobody told of it in {waited} s; {operator}");
        detail.extend(event);
        for (deployment, why) in self.refusals {
            detail.extend(["; no pod of Deployment ", deployment, ": ", why]);
        }
        for error in self.unseen {
            detail.extend(["; ".to_owned(), error.to_string()]);
        }
        let hint = match (self.unseen.first(), self.refusals) {
            (Some(ApiError::Refused { status: 401 | 403, .. }), _) => LET_WATCH,
            (Some(error), _) => error.hint(),
            (None, []) => SEE_EVENTS,
            (None, _) => LET_PODS_IN,
        };
        (hop, Failure::new(detail, hint))
    }

    /// The certificate that the canary has loaded and proves with.
    pub(super) fn proven_thumbprint(&self) -> Option<String> {
        let mountings = self.mountings();
        let canary = mountings.first()?.pod.canary.told()?;
        let is_proven = canary.failure.is_none()
            && canary.last_good_hop.as_deref() == Some(Hop::Granted.name());
        canary.credential.as_ref().filter(|_| is_proven).map(|it| it.thumbprint.clone())
    }

    /// The pods of the consumers that stay, with their volumes.
    fn mountings(&self) -> Vec<Mounting> {
        let class = self.component.facts().secret_provider_class;
        let mut mountings = Vec::new();
        for consumer in self.component.consumers() {
            let found = self.pods.iter().find_map(|pod| {
                let seen = ObservedPod::of(pod);
                let is_ours = seen.deployment.as_deref() == Some(consumer.deployment)
                    && seen.classes.contains(class)
                    && !seen.is_deleting;
                is_ours.then(|| (seen, mount_path(pod, consumer)))
            });
            let Some((pod, Some(mount_path))) = found else { continue };
            let volumes = self.volumes.iter().filter_map(|status| ObservedVolume::of(status));
            let volume = volumes
                .into_iter()
                .find(|it| it.class == class && it.pod == pod.name && it.pod_uid == pod.uid);
            mountings.push(Mounting { consumer, pod, mount_path, volume });
        }
        mountings
    }

    /// The hops of objects: what is wished, what was made of it, and who mounts it.
    fn objects(&self, mountings: &[Mounting], account: &mut Account) {
        if self.class.is_none() && self.identity.is_none() {
            return;
        }
        let Some(identity) = self.cluster.identities.get(&self.component) else { return };
        account.good.push((
            Hop::HostedCluster,
            format!(
                "secret `{}` in vault `{}`, {}; {}/{} on {}",
                identity.secret_name,
                self.cluster.vault.name,
                identity.encoding,
                self.cluster.namespace,
                self.cluster.name,
                self.server
            ),
        ));
        let Some(class) = self.class.filter(|class| class.parse_parameters().is_ok()) else {
            return;
        };
        let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
        let detail = format!("{namespace}/{}", class.name_any());
        account.good.push((Hop::SecretProviderClass, detail));
        if mountings.len() < self.component.consumers().len() {
            return;
        }
        let places: Vec<_> = mountings
            .iter()
            .map(|it| format!("pod {} mounts it at {}", it.pod.name, it.mount_path))
            .collect();
        account.good.push((Hop::Volume, places.join("; ")));
    }

    fn failure(&self, mountings: &[Mounting], account: &Account) -> Option<(Hop, Failure)> {
        if let Some(identity) = self.identity.filter(|identity| identity.ready == FALSE) {
            let failed = identity.failed_hop.as_deref().and_then(hop_named);
            let last = identity.last_good_hop.as_deref().and_then(hop_named);
            let next = || Hop::ALL.into_iter().find(|hop| Some(*hop) > last);
            let (detail, hint) =
                identity.message.split_once(NEXT).unwrap_or((&identity.message, SEE_STATUS));
            let failure = Failure::new(format!("{}: {detail}", identity.reason), hint);
            return Some((failed.or_else(next)?, failure));
        }
        // A pod whose volume cannot be mounted does not run: only its events say why.
        let reached = account.good.last().map(|(hop, _)| *hop);
        let warnings = self.warnings(mountings).into_iter();
        let never = |(_, code, _): &(String, OutcomeCode, String)| code.healing() == Healing::Never;
        let (pod, code, text) = warnings.into_iter().find(never)?;
        let (text, hint) = text.split_once(HINT).unwrap_or((&text, code.hint()));
        let hop = if reached >= Some(Hop::File) { Hop::Credential } else { code.hop() };
        Some((hop, Failure::new(format!("pod {pod} does not start: {text}"), hint)))
    }

    /// What the node plugin says of pods that are not ready: pod, code and text, the oldest first.
    fn warnings(&self, mountings: &[Mounting]) -> Vec<(String, OutcomeCode, String)> {
        let mut events: Vec<_> = self.events.iter().collect();
        events.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
        events
            .into_iter()
            .filter_map(|event| {
                let uid = event.involved_object.uid.as_ref()?;
                let pod = mountings
                    .iter()
                    .map(|it| &it.pod)
                    .find(|pod| pod.uid.as_ref() == Some(uid) && !pod.is_ready)?;
                let reason = event.reason.as_deref().filter(|_| is_warning(event))?;
                let code = OutcomeCode::ALL.iter().find(|code| code.name() == reason)?;
                Some((pod.name.clone(), *code, event.message.clone().unwrap_or_default()))
            })
            .collect()
    }
}

/// The hops that the node plugin walks, for every consumer.
fn mounted(mountings: &[Mounting], account: &mut Account) {
    if account.good.last().map(|(hop, _)| *hop) != Some(Hop::Volume) {
        return;
    }
    let reached = mountings.iter().map(reached).min().flatten();
    for hop in [Hop::ImdsToken, Hop::VaultRead, Hop::Decode, Hop::File] {
        if Some(hop) <= reached {
            account.good.push((hop, node_detail(hop, mountings)));
        }
    }
}

/// The hops that the canary walks.
fn proven(mountings: &[Mounting], account: &mut Account) {
    let is_mounted = account.good.last().map(|(hop, _)| *hop) == Some(Hop::File);
    let Some(first) = mountings.first().filter(|_| is_mounted) else { return };
    let Facts::Told(canary) = &first.pod.canary else { return };
    let reached = canary.last_good_hop.as_deref().and_then(hop_named);
    for hop in [Hop::Credential, Hop::EntraToken, Hop::Granted] {
        if Some(hop) > reached {
            return;
        }
        let detail = match (&canary.credential, hop) {
            (Some(loaded), Hop::Credential) => {
                let end = loaded.not_after.map(|end| end.to_string());
                let end = end.unwrap_or_else(|| "-".to_owned());
                format!("client {}, expires {end}", loaded.client_id)
            }
            _ => format!("the canary of pod {} says so", first.pod.name),
        };
        account.good.push((hop, detail));
    }
}

/// Where the consumer's container mounts the volume.
fn mount_path(pod: &Pod, consumer: &Consumer) -> Option<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.find(|mount| mount.name == consumer.volume).map(|mount| mount.mount_path.clone())
}

/// The last hop that is known to be good of a mounted volume.
fn reached(mounting: &Mounting) -> Option<Hop> {
    let volume = mounting.volume.as_ref().filter(|volume| volume.is_mounted)?;
    match &volume.facts {
        Facts::Told(facts) => facts.last_good_hop.as_deref().and_then(hop_named),
        // It is mounted, and that is all that was told.
        Facts::Absent | Facts::Unreadable => Some(Hop::File),
    }
}

fn node_detail(hop: Hop, mountings: &[Mounting]) -> String {
    let volumes = mountings.iter().filter_map(|it| it.volume.as_ref());
    match hop {
        Hop::VaultRead => {
            let objects = volumes.flat_map(|volume| &volume.objects);
            let mut objects: Vec<_> =
                objects.map(|(id, version)| format!("{id} version {version}")).collect();
            objects.dedup();
            objects.join(", ")
        }
        Hop::File => {
            let pods = mountings
                .iter()
                .map(|it| format!("mounted for {} of pod {}", it.consumer.container, it.pod.name));
            pods.collect::<Vec<_>>().join("; ")
        }
        _ => "the node plugin says so in its volume facts".to_owned(),
    }
}

fn is_warning(event: &Event) -> bool {
    event.type_.as_deref() == Some("Warning")
}

fn hop_named(name: &str) -> Option<Hop> {
    Hop::ALL.into_iter().find(|hop| hop.name() == name)
}

/// What stands between a message and its hint in the status of an identity.
const NEXT: &str = "; next: ";
/// The same in the events of the node plugin.
const HINT: &str = "; hint: ";
const SEE_EVENTS: &str = "run again with --log debug, and see the events of the pods";
const LET_PODS_IN: &str =
    "let the admission policies and quotas of the cluster take the pod, or use another cluster";
const LET_WATCH: &str = "use a kubeconfig whose user may list and watch SecretProviderClasses, their pod \
     statuses, Deployments, pods and events in the namespace of the control plane, and \
     HostedClusterIdentities in that of the HostedCluster";
const SEE_STATUS: &str = "see `kubectl lanyard identities -A`";

#[cfg(test)]
mod tests;
