//! Forecasts of credential expiry, and of the time until which action still helps.
//!
//! A rotator renews a credential by writing a newer one to the vault. The renewal is expected from
//! `renew_after` on, and impossible from `cannot_renew_after` on. A write later than the
//! [`PropagationDelay`] before `not_after` is too late, because nodes only poll the vault.
//!
//! ```text
//!  not_before      renew_from   renew_by   overdue_from     last_write_at     expires_at
//!      |--- ok --------|---- renewal due -------|--- overdue -----|--- too late ---|- expired
//!                      |<- grace -->|<- delay ->|                 |<--- delay ---->|
//! ```
//!
//! `grace` is the [`RenewalPolicy::grace_period`] and `delay` the total [`PropagationDelay`]. A
//! rotator that writes until `renew_by` never raises an alarm, and a stopped rotator raises one
//! while a write still helps. Both hold if the lifetime leaves time for both; if less than two
//! delays remain between renewal and expiry, the alarm takes precedence.
//!
//! Source: the timestamps of `ManagedIdentityCredentials` in msi-dataplane, which are also tags of
//! the vault's secret.

pub mod calendar;
mod propagation_delay;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod timeline;

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use serde::Serialize;

pub use propagation_delay::{PropagationDelay, RenewalPolicy};
pub use timeline::{RenewalMilestone, TimelineEntry, renewal_timeline};

/// The timestamps of a credential.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForecastTimestamps {
    /// The start of its validity.
    pub not_before: Option<Timestamp>,
    /// The time from which a newer credential is expected.
    pub renew_after: Option<Timestamp>,
    /// The time from which the identity can no longer be renewed.
    pub cannot_renew_after: Option<Timestamp>,
    /// Its expiry.
    pub not_after: Option<Timestamp>,
}

/// The renewal forecast of a credential at a given time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewalForecast {
    /// The renewal state.
    pub verdict: RenewalState,
    /// The time from which a newer credential is expected.
    pub renew_from: Option<Timestamp>,
    /// Whether `renew_from` is an assumption, because the credential has no `renew_after`.
    pub renewal_is_assumed: bool,
    /// The time by which a working rotator has written the newer credential.
    pub renew_by: Option<Timestamp>,
    /// The time from which the renewal is overdue: the newer credential was not written or has not
    /// arrived.
    pub overdue_from: Option<Timestamp>,
    /// The last time at which a write to the vault is in use before the expiry.
    pub last_write_at: Option<Timestamp>,
    /// The time from which the identity can no longer be renewed.
    pub cannot_renew_after: Option<Timestamp>,
    /// The expiry of the credential.
    pub expires_at: Option<Timestamp>,
    #[serde(skip)]
    evaluated_at: Timestamp,
}

/// The renewal state of a credential, in increasing severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum RenewalState {
    /// The expiry is unknown.
    Unknown,
    /// No action is needed.
    Ok,
    /// A newer credential is expected.
    RenewalDue,
    /// A newer credential should be in use, and is not.
    Overdue,
    /// A write to the vault is now too late: the identity will not work for a while after the
    /// expiry.
    TooLate,
    /// The credential has expired.
    Expired,
}

impl RenewalState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Ok, Self::RenewalDue, Self::Overdue, Self::TooLate, Self::Expired];

    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::RenewalDue => "renewal-due",
            Self::Overdue => "overdue",
            Self::TooLate => "too-late",
            Self::Expired => "expired",
        }
    }

    /// Returns the reason for a condition.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "NotReported",
            Self::Ok | Self::RenewalDue => "AsExpected",
            Self::Overdue => "RenewalOverdue",
            Self::TooLate => "RenewalTooLate",
            Self::Expired => "CredentialExpired",
        }
    }

    /// Returns whether a person must act.
    pub const fn requires_action(self) -> bool {
        matches!(self, Self::Overdue | Self::TooLate | Self::Expired)
    }

    /// Returns whether the state is unknown.
    pub const fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Returns the suggested next step; `None` if no action is needed.
    pub const fn hint(self) -> Option<&'static str> {
        match self {
            Self::Ok | Self::RenewalDue => None,
            Self::Unknown => Some(
                "check that the pod runs, and that its canary or its node reports the timestamps",
            ),
            Self::Overdue => {
                Some("check why the vault's secret was not renewed, and why nodes do not read it")
            }
            Self::TooLate => Some(
                "renew the vault's secret now, annotate the class with `lanyard.dev/refresh`, and expect a gap",
            ),
            Self::Expired => {
                Some("renew the vault's secret, and annotate the class with `lanyard.dev/refresh`")
            }
        }
    }
}

impl From<RenewalState> for &'static str {
    fn from(verdict: RenewalState) -> Self {
        verdict.name()
    }
}

impl fmt::Display for RenewalState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Returns the forecast at `now` for the credential in an identity's status.
pub fn forecast_identity_renewal(
    identity: &IdentityStatus,
    policy: &RenewalPolicy,
    now: Timestamp,
) -> RenewalForecast {
    let IdentityStatus { not_before, renew_after, cannot_renew_after, not_after, .. } = *identity;
    forecast_renewal(
        ForecastTimestamps { not_before, renew_after, cannot_renew_after, not_after },
        policy,
        now,
    )
}

/// Returns the forecast at `now` for a credential.
pub fn forecast_renewal(
    stamps: ForecastTimestamps,
    policy: &RenewalPolicy,
    now: Timestamp,
) -> RenewalForecast {
    let blank = RenewalForecast {
        verdict: RenewalState::Unknown,
        renew_from: stamps.renew_after,
        renewal_is_assumed: false,
        renew_by: None,
        overdue_from: None,
        last_write_at: None,
        cannot_renew_after: stamps.cannot_renew_after,
        expires_at: stamps.not_after,
        evaluated_at: now,
    };
    let Some(expires) = stamps.not_after else { return blank };
    let reach = policy.propagation_delay.total();
    let reached = subtract_saturating(expires, reach);
    let last_write = stamps.cannot_renew_after.map_or(reached, |end| end.min(reached));
    let renew_from = stamps.renew_after.unwrap_or_else(|| assumed_renew_after(stamps, expires));
    let renew_by = add_saturating(renew_from, renewal_grace_period(policy, renew_from, last_write));
    // If even an immediate renewal would arrive too late to avoid an alarm, the renewal is overdue
    // from the start.
    let overdue = Some(add_saturating(renew_by, reach)).filter(|overdue| *overdue < last_write);
    let overdue = overdue.unwrap_or_else(|| renew_from.min(last_write));
    let verdict = match now {
        now if now >= expires => RenewalState::Expired,
        now if now >= last_write => RenewalState::TooLate,
        now if now >= overdue => RenewalState::Overdue,
        now if now >= renew_from => RenewalState::RenewalDue,
        _ => RenewalState::Ok,
    };
    RenewalForecast {
        verdict,
        renew_from: Some(renew_from),
        renewal_is_assumed: stamps.renew_after.is_none(),
        renew_by: Some(renew_by),
        overdue_from: Some(overdue),
        last_write_at: Some(last_write),
        ..blank
    }
}

/// Returns the grace period of the rotator: at most half of the time that remains after an
/// immediate write has arrived.
fn renewal_grace_period(
    policy: &RenewalPolicy,
    renew_from: Timestamp,
    last_write: Timestamp,
) -> Duration {
    let spare =
        last_write.duration_since(add_saturating(renew_from, policy.propagation_delay.total()));
    let spare = Duration::try_from(spare.max(SignedDuration::ZERO)).unwrap_or_default();
    policy.grace_period.min(spare / 2)
}

/// Returns the assumed renewal time of a credential without `renew_after`: the beginning of the
/// last fifth of its lifetime, when a vault renews its certificates by default; without
/// `not_before`, one week before the expiry.
fn assumed_renew_after(stamps: ForecastTimestamps, expires: Timestamp) -> Timestamp {
    let life = stamps.not_before.map(|begin| expires.duration_since(begin));
    let life = life.and_then(|life| Duration::try_from(life).ok());
    subtract_saturating(expires, life.map_or(ASSUMED_RENEWAL_WINDOW, |life| life / 5))
}

impl RenewalForecast {
    /// Returns whether the identity can no longer be renewed although a write would still arrive in
    /// time: only a new identity helps.
    fn is_not_renewable(&self) -> bool {
        self.verdict == RenewalState::TooLate
            && self.cannot_renew_after.is_some_and(|end| Some(end) == self.last_write_at)
    }

    /// Returns the reason for a condition.
    pub fn reason(&self) -> &'static str {
        if self.is_not_renewable() { "IdentityNotRenewable" } else { self.verdict.reason() }
    }

    /// Returns the suggested next step; `None` if no action is needed.
    pub fn hint(&self) -> Option<&'static str> {
        if self.is_not_renewable() { Some(REPLACE_IDENTITY_HINT) } else { self.verdict.hint() }
    }

    /// Returns the next time at which the state becomes worse.
    pub fn next_change_at(&self) -> Option<Timestamp> {
        self.milestones().into_iter().map(|(at, _)| at).filter(|at| *at > self.evaluated_at).min()
    }

    /// Returns the known milestones, in chronological order.
    pub fn milestones(&self) -> Vec<(Timestamp, RenewalMilestone)> {
        let all = [
            (self.renew_from, RenewalMilestone::RenewFrom),
            (self.overdue_from, RenewalMilestone::OverdueFrom),
            (self.last_write_at, RenewalMilestone::LastWrite),
            (self.expires_at, RenewalMilestone::Expiry),
        ];
        let known = all.into_iter().filter_map(|(at, moment)| Some((at?, moment)));
        let mut known: Vec<_> = known.collect();
        known.sort();
        known
    }

    /// Returns the forecast as a sentence that changes only with the state.
    pub fn summary(&self) -> String {
        let format_time =
            |at: Option<Timestamp>| at.map_or_else(|| "?".to_owned(), |at| at.to_string());
        let what = match self.verdict {
            RenewalState::Unknown => "the expiry of its credential is unknown".to_owned(),
            RenewalState::Ok => format!("its credential ends at {}", format_time(self.expires_at)),
            RenewalState::RenewalDue => format!(
                "the renewal of its credential is due since {}, and the credential ends at {}",
                format_time(self.renew_from),
                format_time(self.expires_at)
            ),
            RenewalState::Overdue => {
                let bound = if self.cannot_renew_after == self.last_write_at {
                    "the identity cannot be renewed"
                } else {
                    "a write to the vault is too late"
                };
                format!(
                    "a renewal is overdue since {}; {bound} after {}, and the credential ends at {}",
                    format_time(self.overdue_from),
                    format_time(self.last_write_at),
                    format_time(self.expires_at)
                )
            }
            RenewalState::TooLate if self.is_not_renewable() => format!(
                "the identity cannot be renewed since {}, and its credential ends at {}",
                format_time(self.cannot_renew_after),
                format_time(self.expires_at)
            ),
            RenewalState::TooLate => format!(
                "writes to the vault since {} are too late, and the credential ends at {}",
                format_time(self.last_write_at),
                format_time(self.expires_at)
            ),
            RenewalState::Expired => {
                format!("its credential ended at {}", format_time(self.expires_at))
            }
        };
        match self.hint() {
            Some(hint) => format!("{what}; next: {hint}"),
            None => what,
        }
    }
}

fn subtract_saturating(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_sub(by).unwrap_or(Timestamp::MIN)
}

fn add_saturating(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

const REPLACE_IDENTITY_HINT: &str =
    "create another identity, and set its secret in the HostedCluster before the credential ends";
/// For a credential with only an expiry.
const ASSUMED_RENEWAL_WINDOW: Duration = Duration::from_hours(7 * 24);
