//! What is news in a status: one event each.

use lanyard_api::hosted_cluster_identities::{HostedClusterIdentitiesStatus, IdentityStatus};

use super::conditions::{
    ADVISED_CONFIGURATION, CREDENTIALS_RENEWED, IDENTITIES_IN_STEP, VALID_KMS_CONFIG, VALID_NETWORK,
};
use super::{CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN, REASON_AS_EXPECTED};
use crate::report_text::{single_line, valid_reason_or};

/// Something that changed, as an event tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTransition {
    /// Its type.
    pub event_type: EventType,
    /// Its reason, a word.
    pub reason: String,
    /// Its message, of at most 1024 bytes, as the API takes it.
    pub message: String,
}

/// The types of events that Kubernetes knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// All is well, or well again.
    Normal,
    /// Somebody should look.
    Warning,
}

impl EventType {
    /// The word of the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What is news, in the order of the status. Nothing where both are equal; and nothing but what is
/// known at once where there was no status before.
///
/// The condition that sums up the identities brings no event of its own: each of them does.
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
            // Knowing less than before is news to somebody; not yet knowing more is none.
            if was.0 == CONDITION_UNKNOWN {
                return None;
            }
            let message =
                format!("nobody tells any more how identity `{component}` is: {}", now.message);
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
    // Of two pods the one with the newer credential may go.
    let stamps = |it: &IdentityStatus| (it.not_before, it.not_after);
    let goes_back = previous.not_before.zip(now.not_before).is_some_and(|(was, is)| is < was)
        || previous.not_after.zip(now.not_after).is_some_and(|(was, is)| is < was);
    let is_newer = stamps(now) != stamps(previous) || now.not_after.is_none();
    if was == is || goes_back || !is_newer {
        return None;
    }
    let until = now.not_after.map(|end| format!(", valid until {end}")).unwrap_or_default();
    let component = &now.component;
    // Without its stamps nobody knows more than what is mounted.
    let what = if now.not_after.is_some() { "loaded" } else { "mounted" };
    let message = format!("identity `{component}`: version {is} is {what} in every pod{until}");
    Some(StatusTransition::normal("CredentialRotated", message))
}

/// Status, reason and message of a condition.
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
        (CONDITION_FALSE, CONDITION_UNKNOWN) => Some(StatusTransition::warning(
            &code,
            &format!("{kind} is not known any more: {message}"),
        )),
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
        Self { event_type, reason, message: single_line(message, MAX_EVENT_MESSAGE_BYTES) }
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
