//! How one identity is: what the pods of its consumers account for, together.

use std::time::Duration;

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::whole_second;
use lanyard_vocabulary::{ClientId, Component, Consumer, Hop, OutcomeCode};

use super::account::{Account, NOT_REPORTED, Standing, Trouble, Walk};
use super::credential::Credential;
use super::observed::{ClusterState, Observed, ObservedPod, ObservedVolume};
use super::{AS_EXPECTED, FALSE, MOST_TEXT, TRUE, UNKNOWN};
use crate::told::{hop_named, one_line};

/// How an identity is.
pub(super) fn identity_status(observed: &Observed<'_>, component: Component) -> IdentityStatus {
    let accounts = accounts(observed, component);
    if let Some(kept) = kept(observed, component, &accounts) {
        return kept;
    }
    let speaker = accounts.iter().min_by_key(|it| rank(it)).map(|speaking| &speaking.account);
    let credential = accounts.iter().filter_map(|it| it.account.credential.as_ref());
    let credential = credential.min_by(|one, other| one.age().cmp(&other.age())).cloned();
    let credential = credential.unwrap_or_default();
    let (ready, reason, message) =
        speaker.map_or((UNKNOWN, NOT_REPORTED.to_owned(), String::new()), words);
    let last_good_hop = speaker.and_then(|speaker| last_good(speaker, &accounts));
    let mut status = IdentityStatus {
        component: component.name().to_owned(),
        client_id: client_id(observed, component, &credential),
        secret_provider_class: component.facts().secret_provider_class.to_owned(),
        ready: ready.to_owned(),
        reason,
        message: one_line(&message, MOST_TEXT),
        last_good_hop: last_good_hop.map(|hop| hop.name().to_owned()),
        failed_hop: speaker.and_then(Account::failed).map(|hop| hop.name().to_owned()),
        loaded_version: credential
            .version
            .map(|it| one_line(&it, IdentityStatus::LONGEST_VERSION.into())),
        not_before: credential.not_before,
        not_after: credential.not_after,
        renew_after: credential.renew_after,
        cannot_renew_after: credential.cannot_renew_after,
        since: None,
    };
    status.since = Some(since(observed, component, ready, speaker));
    status
}

/// Whether a pod counts: what it reported is what is so. Gives until when it does not, where it is
/// on its way: it began only now, or it goes.
pub(super) fn counts(observed: &Observed<'_>, pod: &ObservedPod) -> Result<(), Option<Timestamp>> {
    let is_to_come = |time: &Timestamp| *time > observed.now;
    let after = |time: Timestamp| time.saturating_add(SETTLING).unwrap_or(time);
    let is_restless = pod.restarts >= RESTLESS;
    if pod.is_deleting {
        return Err(pod.gone_by.filter(is_to_come));
    }
    if !pod.is_ready {
        return Err(pod.created.map(after).filter(is_to_come).filter(|_| !is_restless));
    }
    let is_silent = pod.canary.told().is_none();
    match pod.started.map(after).filter(is_to_come) {
        Some(settled) if is_silent || is_restless => Err(Some(settled)),
        _ => Ok(()),
    }
}

/// The identity as it stands, while a pod that would speak for it is on its way and nobody else says
/// that it is broken: a rollout is no news. So is the end of a cluster, whose pods go.
fn kept(
    observed: &Observed<'_>,
    component: Component,
    accounts: &[Speaking<'_>],
) -> Option<IdentityStatus> {
    let is_broken = accounts.iter().any(|it| it.account.standing == Standing::Broken);
    if is_broken && !observed.is_ending || !accounts.iter().any(|it| it.is_awaited) {
        return None;
    }
    let previous = previous(observed, component).filter(|it| it.ready != UNKNOWN)?;
    let lasts = previous.not_after.is_none_or(|end| end > observed.now);
    (lasts || observed.is_ending).then(|| previous.clone())
}

fn previous<'a>(observed: &Observed<'a>, component: Component) -> Option<&'a IdentityStatus> {
    let mut previous = observed.previous?.identities.iter();
    previous.find(|it| it.component == component.name())
}

/// Whether the canary of a pod that counts says that the component's identity fails.
pub(super) fn is_refused(observed: &Observed<'_>, component: Component) -> bool {
    observed.pods.iter().filter(|pod| counts(observed, pod).is_ok()).any(|pod| {
        let canary = pod.canary.told().filter(|it| it.component == component.name());
        canary.is_some_and(|it| it.failure.is_some())
    })
}

/// An account, and where it is from.
struct Speaking<'a> {
    account: Account,
    row: usize,
    pod: &'a str,
    /// Nobody speaks, and somebody is on the way.
    is_awaited: bool,
}

/// The worst speaks: what is broken before what nobody knows before what is proven; of several that
/// are broken, the one that is broken first; of several that are proven, one with a trouble.
fn rank<'a>(speaking: &'a Speaking<'_>) -> impl Ord + use<'a> {
    let Speaking { account, row, pod, .. } = speaking;
    let failed = account.failed();
    (account.standing, failed.is_none(), failed, *row, *pod)
}

fn accounts<'a>(observed: &Observed<'a>, component: Component) -> Vec<Speaking<'a>> {
    let class = component.facts().secret_provider_class;
    let has_class = observed.classes.has(class);
    if has_class == Some(false) {
        let account = without_class(observed, class);
        return vec![Speaking { account, row: 0, pod: "", is_awaited: observed.is_ending }];
    }
    let object = secret_id(observed, component);
    let rows = component.consumers().iter().enumerate();
    rows.flat_map(|(row, consumer)| {
        let walk = Walk {
            component,
            consumer,
            object: object.as_deref(),
            proves: proves(observed, component),
            now: observed.now,
            previous: previous(observed, component),
        };
        row_accounts(observed, &walk, row)
    })
    .map(|mut speaking| {
        // A hop before the first that anybody tells of is known by the objects themselves.
        let known = if has_class.is_some() { Hop::SecretProviderClass } else { Hop::HostedCluster };
        let account = &mut speaking.account;
        if account.failed().is_none_or(|failed| failed > known) {
            account.last_good = account.last_good.max(Some(known));
        }
        speaking
    })
    .collect()
}

/// How far the canary of a component walks. Of a cluster that cannot be used it is as far as it had
/// come when the identity was proven.
fn proves(observed: &Observed<'_>, component: Component) -> Hop {
    if let ClusterState::Valid(cluster) = observed.cluster {
        return observed.canaries.proves(cluster, component);
    }
    let proven = previous(observed, component).filter(|it| it.ready == TRUE);
    let came_to = proven.and_then(|it| hop_named(it.last_good_hop.as_deref()?));
    came_to.map_or(Hop::Granted, |hop| hop.clamp(Hop::EntraToken, Hop::Granted))
}

fn row_accounts<'a>(observed: &Observed<'a>, walk: &Walk<'_>, row: usize) -> Vec<Speaking<'a>> {
    let pods: Vec<_> =
        observed.pods.iter().filter(|pod| consumes(pod, walk.component, row)).collect();
    let mut accounts: Vec<_> = pods
        .iter()
        .filter(|pod| counts(observed, pod).is_ok())
        .map(|pod| {
            let account = walk.account(pod, volume_of(observed, pod, walk.component));
            Speaking { account, row, pod: &pod.name, is_awaited: false }
        })
        .collect();
    if accounts.is_empty() {
        let account = nobody(observed, walk, &pods);
        let is_awaited = pods.iter().any(|pod| matches!(counts(observed, pod), Err(Some(_))))
            || observed.is_ending && pods.iter().all(|pod| pod.is_deleting);
        accounts.push(Speaking { account, row, pod: "", is_awaited });
    }
    accounts
}

/// Whether a pod is one of a consumer of the component. A pod whose deployment cannot be seen is
/// one of the first.
fn consumes(pod: &ObservedPod, component: Component, row: usize) -> bool {
    let consumer = component.consumers().get(row);
    let is_of_row = match &pod.deployment {
        Some(deployment) => consumer.is_some_and(|it| it.deployment == deployment),
        None => row == 0,
    };
    is_of_row && pod.classes.contains(component.facts().secret_provider_class)
}

fn volume_of<'a>(
    observed: &Observed<'a>,
    pod: &ObservedPod,
    component: Component,
) -> Option<&'a ObservedVolume> {
    let class = component.facts().secret_provider_class;
    let mut volumes: Vec<_> = observed
        .volumes
        .iter()
        .filter(|volume| volume.class == class && volume.belongs_to(pod))
        .collect();
    // There is one for each pod and class; should somebody have written another, order must not
    // decide.
    volumes
        .sort_by(|one, other| (&one.pod_uid, &one.objects).cmp(&(&other.pod_uid, &other.objects)));
    volumes.pop()
}

/// What stands there while no pod of a consumer counts.
fn nobody(observed: &Observed<'_>, walk: &Walk<'_>, pods: &[&ObservedPod]) -> Account {
    let Consumer { deployment, .. } = walk.consumer;
    let mut pods: Vec<_> = pods.iter().filter(|pod| !pod.is_deleting).collect();
    pods.sort_by_key(|pod| &pod.name);
    let missing = match pods.first() {
        None => format!("no pod of `{deployment}` mounts the class"),
        Some(pod) if !pod.is_ready => {
            let volume = volume_of(observed, pod, walk.component);
            let trouble = volume.and_then(|volume| walk.fold(pod, Some(volume)).trouble);
            let told = trouble.map(|it| format!(": {}: {}", it.reason, it.message));
            let events = "; its events say why".to_owned();
            format!("pod `{}` of `{deployment}` is not ready{}", pod.name, told.unwrap_or(events))
        }
        Some(pod) => format!("pod `{}` of `{deployment}` began only now", pod.name),
    };
    Account::unknown(NOT_REPORTED, missing, None)
}

/// Pods that wait for a class that is gone are broken; before there are any, it is only missing.
fn without_class(observed: &Observed<'_>, class: &str) -> Account {
    let code = OutcomeCode::SecretProviderClassNotFound;
    let trouble = Trouble {
        hop: Some(code.hop()),
        reason: code.name().to_owned(),
        message: format!("the SecretProviderClass `{class}` is not there"),
        hint: "see why it was not made: the operator's log, and who may write classes".to_owned(),
        since: None,
    };
    let last_good = Some(Hop::HostedCluster);
    let is_mounted =
        observed.pods.iter().any(|pod| !pod.is_deleting && pod.classes.contains(class));
    if is_mounted {
        return Account::broken(last_good, trouble);
    }
    let missing = trouble.message.clone();
    Account { trouble: Some(trouble), ..Account::unknown(code.name(), missing, last_good) }
}

fn words(account: &Account) -> (&'static str, String, String) {
    let told = |trouble: &Trouble| {
        let message = trouble.message.trim_end_matches('.');
        match trouble.hint.trim() {
            "" => message.to_owned(),
            hint => format!("{message}; next: {hint}"),
        }
    };
    match (account.standing, &account.trouble, &account.missing) {
        (Standing::Proven, None, _) => (TRUE, AS_EXPECTED.to_owned(), String::new()),
        (Standing::Proven, Some(trouble), _) => (TRUE, trouble.reason.clone(), told(trouble)),
        (Standing::Broken, Some(trouble), _) => (FALSE, trouble.reason.clone(), told(trouble)),
        (_, Some(trouble), Some((word, missing))) if trouble.message != *missing => {
            (UNKNOWN, (*word).to_owned(), format!("{missing}; and {}", told(trouble)))
        }
        (_, Some(trouble), Some((word, _))) => (UNKNOWN, (*word).to_owned(), told(trouble)),
        (_, _, missing) => {
            let (word, missing) = missing.clone().unwrap_or((NOT_REPORTED, String::new()));
            (UNKNOWN, word.to_owned(), missing)
        }
    }
}

/// A pod that proves another identity vouches for the file alone, which takes nothing away from
/// what others proved.
fn last_good(speaker: &Account, accounts: &[Speaking<'_>]) -> Option<Hop> {
    if speaker.standing != Standing::Proven {
        return speaker.last_good;
    }
    let proven = accounts.iter().filter(|it| it.row == 0);
    proven.filter_map(|it| it.account.last_good).min().or(speaker.last_good)
}

fn secret_id(observed: &Observed<'_>, component: Component) -> Option<String> {
    let ClusterState::Valid(cluster) = observed.cluster else { return None };
    let identity = cluster.identities.get(&component)?;
    Some(format!("secret/{}", identity.secret_name))
}

fn client_id(
    observed: &Observed<'_>,
    component: Component,
    credential: &Credential,
) -> Option<String> {
    let named = match observed.cluster {
        ClusterState::Valid(cluster) => cluster.identities.get(&component)?.client_id,
        ClusterState::Invalid(_) => None,
    };
    // An annotation may say anything; what is no client id would have the whole status refused.
    let loaded = || credential.client_id.as_deref()?.parse().ok();
    named.or_else(loaded).map(|id: ClientId| id.to_string())
}

/// Since when `ready` is what it is: as it stood, while it stays; of what broke, since when its
/// witness says; else from now on.
fn since(
    observed: &Observed<'_>,
    component: Component,
    ready: &str,
    speaker: Option<&Account>,
) -> Timestamp {
    let same = previous(observed, component).filter(|it| it.ready == ready);
    if let Some(since) = same.and_then(|it| it.since) {
        return since;
    }
    let witness = speaker.filter(|it| it.standing == Standing::Broken);
    let told = witness.and_then(|it| it.trouble.as_ref()).and_then(|trouble| trouble.since);
    whole_second(told.unwrap_or(observed.now).min(observed.now))
}

/// How long a pod that began only now, and has said nothing, is waited for; and how long one that
/// is restarted again and again has to run until what it says counts again.
const SETTLING: Duration = Duration::from_mins(2);
/// So many restarts are no accident.
const RESTLESS: u32 = 3;
