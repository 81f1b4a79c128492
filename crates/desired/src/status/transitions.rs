//! Status transitions that are reported as events.

use lanyard_api::hosted_cluster_identities::{HostedClusterIdentitiesStatus, IdentityStatus};

use super::conditions::{
    ADVISED_CONFIGURATION, CREDENTIALS_RENEWED, IDENTITIES_IN_STEP, VALID_KMS_CONFIG, VALID_NETWORK,
};
use super::{CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN, REASON_AS_EXPECTED};
use crate::report_text::{single_line_with_scope, valid_reason_or};

/// A status transition, as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTransition {
    pub event_type: EventType,
    /// The event reason.
    pub reason: String,
    /// The event message, of at most 1024 bytes (the limit of the API).
    pub message: String,
}

/// The event types of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// A success or a recovery.
    Normal,
    /// A failure that needs attention.
    Warning,
}

impl EventType {
    /// Returns the name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Returns the transitions between two statuses, in the order of the status. Equal statuses have
/// none. Without a previous status, only known states are reported.
///
/// The condition that summarizes the identities has no event of its own, because each identity has
/// one.
pub fn status_transitions(
    previous: Option<&HostedClusterIdentitiesStatus>,
    now: &HostedClusterIdentitiesStatus,
) -> Vec<StatusTransition> {
    let identities = now.identities.iter().filter_map(|identity| {
        let mut known = previous.into_iter().flat_map(|status| &status.identities);
        identity_transition(known.find(|it| it.component == identity.component), identity)
    });
    let conditions = CONDITIONS_WITH_EVENTS.into_iter().filter_map(|kind| {
        let find = |status: &HostedClusterIdentitiesStatus| {
            let condition = status.conditions.iter().find(|it| it.type_ == kind)?;
            Some((condition.status.clone(), condition.reason.clone(), condition.message.clone()))
        };
        condition_transition(kind, previous.and_then(find), find(now)?)
    });
    identities.chain(conditions).collect()
}

fn identity_transition(
    previous: Option<&IdentityStatus>,
    now: &IdentityStatus,
) -> Option<StatusTransition> {
    let component = &now.component;
    let was =
        previous.map_or((CONDITION_UNKNOWN, ""), |it| (it.ready.as_str(), it.reason.as_str()));
    let is = (now.ready.as_str(), now.reason.as_str());
    if was == is || (previous.is_none() && now.ready == CONDITION_UNKNOWN) {
        return rotation_transition(previous?, now);
    }
    match is {
        (CONDITION_TRUE, REASON_AS_EXPECTED) => {
            let until = now.not_after.map(|end| format!(" until {end}")).unwrap_or_default();
            let message = format!("identity `{component}` works; its credential is valid{until}");
            Some(StatusTransition::normal("IdentityReady", message))
        }
        (CONDITION_TRUE, code) => {
            let message = format!("identity `{component}` works, but: {}", now.message);
            Some(StatusTransition::warning(code, &message))
        }
        (CONDITION_UNKNOWN, word) => {
            // A change to `Unknown` is reported; an initial `Unknown` is not.
            if was.0 == CONDITION_UNKNOWN {
                return None;
            }
            let message =
                format!("the state of identity `{component}` is no longer known: {}", now.message);
            Some(StatusTransition::warning(word, &message))
        }
        (_, code) => {
            let hop = now.failed_hop.as_deref().unwrap_or("an unknown hop");
            let message = format!("identity `{component}` is broken at `{hop}`: {}", now.message);
            Some(StatusTransition::warning(code, &message))
        }
    }
}

fn rotation_transition(
    previous: &IdentityStatus,
    now: &IdentityStatus,
) -> Option<StatusTransition> {
    let (was, is) = (previous.loaded_version.as_ref()?, now.loaded_version.as_ref()?);
    // An older version after a newer one is no rotation: the pod with the newer credential may have
    // been deleted.
    let stamps = |it: &IdentityStatus| (it.not_before, it.not_after);
    let goes_back = previous.not_before.zip(now.not_before).is_some_and(|(was, is)| is < was)
        || previous.not_after.zip(now.not_after).is_some_and(|(was, is)| is < was);
    let is_newer = stamps(now) != stamps(previous) || now.not_after.is_none();
    if was == is || goes_back || !is_newer {
        return None;
    }
    let until = now.not_after.map(|end| format!(", valid until {end}")).unwrap_or_default();
    let component = &now.component;
    // Without timestamps, only the mounted version is known.
    let what = if now.not_after.is_some() { "loaded" } else { "mounted" };
    let message = format!("identity `{component}`: version {is} is {what} in every pod{until}");
    Some(StatusTransition::normal("CredentialRotated", message))
}

/// The status, reason and message of a condition.
type ConditionSummary = (String, String, String);

fn condition_transition(
    kind: &str,
    previous: Option<ConditionSummary>,
    now: ConditionSummary,
) -> Option<StatusTransition> {
    let (status, code, message) = now;
    let was = previous.as_ref().map_or(CONDITION_UNKNOWN, |(status, ..)| status.as_str());
    let same_reason = previous.as_ref().is_some_and(|(_, code_before, _)| *code_before == code);
    match (was, status.as_str()) {
        (was, CONDITION_FALSE) if was != CONDITION_FALSE || !same_reason => {
            Some(StatusTransition::warning(&code, &format!("{kind}: {message}")))
        }
        (CONDITION_FALSE, CONDITION_TRUE) => {
            Some(StatusTransition::normal(kind, format!("{kind} again: {message}")))
        }
        (CONDITION_FALSE, CONDITION_UNKNOWN) => {
            Some(StatusTransition::warning(&code, &format!("{kind} is no longer known: {message}")))
        }
        _ => None,
    }
}

impl StatusTransition {
    fn normal(word: &str, message: impl AsRef<str>) -> Self {
        Self::new(EventType::Normal, word, message.as_ref())
    }

    fn warning(word: &str, message: &str) -> Self {
        Self::new(EventType::Warning, word, message)
    }

    fn new(event_type: EventType, word: &str, message: &str) -> Self {
        let reason = valid_reason_or(word, "IdentityChanged");
        let message = single_line_with_scope(message, MAX_EVENT_MESSAGE_BYTES);
        Self { event_type, reason, message }
    }
}

const CONDITIONS_WITH_EVENTS: [&str; 5] = [
    VALID_KMS_CONFIG,
    VALID_NETWORK,
    CREDENTIALS_RENEWED,
    IDENTITIES_IN_STEP,
    ADVISED_CONFIGURATION,
];

/// Source: the validation of `note` in `events.k8s.io/v1`: 1024 bytes.
const MAX_EVENT_MESSAGE_BYTES: usize = 1_024;
