//! What will break next, and until when somebody can still do something about it.
//!
//! A credential is renewed by somebody who writes a newer one into the vault. From `renew_after` on
//! that is to be expected; from `cannot_renew_after` on it is not possible any more; and what is
//! written later than the [`PropagationDelay`] before `not_after` comes too late, because the node looks at
//! the vault from time to time only.
//!
//! ```text
//!  not_before      renew_from   renew_by   overdue_from     last_write_at     expires_at
//!      |--- ok --------|---- renewal due -------|--- overdue -----|--- too late ---|- expired
//!                      |<-patience->|<- reach ->|                 |<--- reach ---->|
//! ```
//!
//! A rotator that writes until `renew_by` never raises an alarm, and one that has stopped is
//! announced while a write still helps. Both hold wherever there is time for both; where the time
//! between renewal and end is shorter than two reaches, being announced comes first.
//!
//! Source: the stamps of `ManagedIdentityCredentials` of msi-dataplane, which are tags of the
//! vault's secret too.

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

/// The stamps of a credential.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForecastTimestamps {
    /// When it begins.
    pub not_before: Option<Timestamp>,
    /// From when on a newer one is to be expected.
    pub renew_after: Option<Timestamp>,
    /// From when on the identity cannot be renewed any more.
    pub cannot_renew_after: Option<Timestamp>,
    /// When it ends.
    pub not_after: Option<Timestamp>,
}

/// What a credential comes to at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewalForecast {
    /// The verdict.
    pub verdict: RenewalState,
    /// From when on a newer credential is to be expected.
    pub renew_from: Option<Timestamp>,
    /// Whether `renew_from` is assumed, because the credential does not say it.
    pub renewal_is_assumed: bool,
    /// Until when a rotator that does its work has written it.
    pub renew_by: Option<Timestamp>,
    /// From when on the renewal is overdue: it was not written, or did not come.
    pub overdue_from: Option<Timestamp>,
    /// The last moment at which something written to the vault is still in use in time.
    pub last_write_at: Option<Timestamp>,
    /// From when on the identity cannot be renewed any more.
    pub cannot_renew_after: Option<Timestamp>,
    /// When the credential ends.
    pub expires_at: Option<Timestamp>,
    #[serde(skip)]
    evaluated_at: Timestamp,
}

/// How a credential stands, the worse the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum RenewalState {
    /// Nobody tells when it ends.
    Unknown,
    /// Nothing is to be done.
    Ok,
    /// A newer one is to be expected.
    RenewalDue,
    /// A newer one should be in use, and is not.
    Overdue,
    /// Whatever is written now comes too late: the identity will stand still for a while.
    TooLate,
    /// It has ended.
    Expired,
}

impl RenewalState {
    /// Every verdict.
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Ok, Self::RenewalDue, Self::Overdue, Self::TooLate, Self::Expired];

    /// The stable name.
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

    /// The reason of a condition.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "NotReported",
            Self::Ok | Self::RenewalDue => "AsExpected",
            Self::Overdue => "RenewalOverdue",
            Self::TooLate => "RenewalTooLate",
            Self::Expired => "CredentialExpired",
        }
    }

    /// Whether somebody should do something.
    pub const fn requires_action(self) -> bool {
        matches!(self, Self::Overdue | Self::TooLate | Self::Expired)
    }

    /// Whether nobody knows.
    pub const fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// What to do next; nothing where nothing is to be done.
    pub const fn hint(self) -> Option<&'static str> {
        match self {
            Self::Ok | Self::RenewalDue => None,
            Self::Unknown => {
                Some("see that the pod runs, and that its canary or its node tells the stamps")
            }
            Self::Overdue => {
                Some("see why what renews the vault's secret did not, and why nodes do not read it")
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

/// What an identity's credential comes to at `now`, by its status.
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

/// What a credential comes to at `now`.
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
    // Where even a renewal at the first moment could not be told from none, it is told at once.
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

/// How long a rotator may take: at most half of the time that is left when what it wrote at once
/// has arrived.
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

/// Without `renew_after` the last fifth of the life, which is when a vault renews its certificates
/// by default; without a beginning the last week.
fn assumed_renew_after(stamps: ForecastTimestamps, expires: Timestamp) -> Timestamp {
    let life = stamps.not_before.map(|begin| expires.duration_since(begin));
    let life = life.and_then(|life| Duration::try_from(life).ok());
    subtract_saturating(expires, life.map_or(ASSUMED_RENEWAL_WINDOW, |life| life / 5))
}

impl RenewalForecast {
    /// Whether the identity cannot be renewed any more while what is written would still come in
    /// time: it takes a new identity, and no write helps.
    fn is_not_renewable(&self) -> bool {
        self.verdict == RenewalState::TooLate
            && self.cannot_renew_after.is_some_and(|end| Some(end) == self.last_write_at)
    }

    /// The reason of a condition.
    pub fn reason(&self) -> &'static str {
        if self.is_not_renewable() { "IdentityNotRenewable" } else { self.verdict.reason() }
    }

    /// What to do next; nothing where nothing is to be done.
    pub fn hint(&self) -> Option<&'static str> {
        if self.is_not_renewable() { Some(REPLACE_IDENTITY_HINT) } else { self.verdict.hint() }
    }

    /// The next moment at which the verdict becomes worse.
    pub fn next_change_at(&self) -> Option<Timestamp> {
        self.milestones().into_iter().map(|(at, _)| at).filter(|at| *at > self.evaluated_at).min()
    }

    /// The moments that are known, in the order of time.
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

    /// The verdict in a sentence that stays the same as long as the verdict does.
    pub fn summary(&self) -> String {
        let told = |at: Option<Timestamp>| at.map_or_else(|| "?".to_owned(), |at| at.to_string());
        let what = match self.verdict {
            RenewalState::Unknown => "nobody tells when its credential ends".to_owned(),
            RenewalState::Ok => format!("its credential ends at {}", told(self.expires_at)),
            RenewalState::RenewalDue => format!(
                "its credential is renewed since {} and ends at {}",
                told(self.renew_from),
                told(self.expires_at)
            ),
            RenewalState::Overdue => {
                let bound = if self.cannot_renew_after == self.last_write_at {
                    "the identity cannot be renewed"
                } else {
                    "what is written to the vault comes too late"
                };
                format!(
                    "a renewal is overdue since {}; {bound} after {}, and the credential ends at {}",
                    told(self.overdue_from),
                    told(self.last_write_at),
                    told(self.expires_at)
                )
            }
            RenewalState::TooLate if self.is_not_renewable() => format!(
                "the identity cannot be renewed since {}, and its credential ends at {}",
                told(self.cannot_renew_after),
                told(self.expires_at)
            ),
            RenewalState::TooLate => format!(
                "what is written to the vault since {} comes too late, and the credential ends at {}",
                told(self.last_write_at),
                told(self.expires_at)
            ),
            RenewalState::Expired => format!("its credential ended at {}", told(self.expires_at)),
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
    "make another identity, and name its secret in the HostedCluster before the credential ends";
/// Of a credential that tells nothing but its end.
const ASSUMED_RENEWAL_WINDOW: Duration = Duration::from_hours(7 * 24);
