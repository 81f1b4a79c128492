//! Leases of blobs and containers.
//!
//! Reference: "Lease Blob" and "Lease Container", outcomes of lease operations by state.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The stored lease of a blob or of a container. [`Self::state_at`] derives its state at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Lease {
    #[default]
    Available,
    Leased {
        id: Uuid,
        /// The duration in seconds; `None` for an infinite lease.
        seconds: Option<u32>,
        /// The start, or the last renewal.
        since: Timestamp,
    },
    Breaking {
        id: Uuid,
        until: Timestamp,
    },
    Broken {
        id: Uuid,
    },
}

/// The reason why the lease of a blob or container, or its absence, does not permit an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseError {
    /// Another client has the lease.
    AlreadyPresent,
    /// The lease is breaking, and cannot be acquired.
    BreakingOnAcquire,
    /// The lease is breaking, and cannot be changed.
    BreakingOnChange,
    /// The lease was broken, and cannot be renewed.
    BrokenOnRenew,
    /// A lease operation names the id of another lease.
    IdMismatch,
    IdMismatchOnBlob,
    IdMismatchOnContainer,
    /// A write to a blob names no lease id.
    IdMissingOnBlob,
    /// A write to a container names no lease id.
    IdMissingOnContainer,
    /// A lease id is given, and the lease has expired or was broken.
    LostOnBlob,
    LostOnContainer,
    /// There is no lease to change.
    NotPresent,
    NotPresentOnBlob,
    NotPresentOnContainer,
}

/// The state of a lease at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    Available,
    Leased { id: Uuid, is_infinite: bool },
    Expired { id: Uuid },
    Breaking { id: Uuid, until: Timestamp },
    Broken { id: Uuid },
}

impl LeaseState {
    /// The value of `x-ms-lease-state`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Leased { .. } => "leased",
            Self::Expired { .. } => "expired",
            Self::Breaking { .. } => "breaking",
            Self::Broken { .. } => "broken",
        }
    }

    /// The value of `x-ms-lease-status`.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Leased { .. } | Self::Breaking { .. } => "locked",
            _ => "unlocked",
        }
    }

    /// The value of `x-ms-lease-duration`; `None` unless the lease is active.
    pub const fn duration(self) -> Option<&'static str> {
        match self {
            Self::Leased { is_infinite: true, .. } => Some("infinite"),
            Self::Leased { is_infinite: false, .. } => Some("fixed"),
            _ => None,
        }
    }
}

/// The resource of a lease, which determines the error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasedResource {
    Blob,
    Container,
}

impl LeasedResource {
    const fn id_mismatch(self) -> LeaseError {
        match self {
            Self::Blob => LeaseError::IdMismatchOnBlob,
            Self::Container => LeaseError::IdMismatchOnContainer,
        }
    }

    const fn id_missing(self) -> LeaseError {
        match self {
            Self::Blob => LeaseError::IdMissingOnBlob,
            Self::Container => LeaseError::IdMissingOnContainer,
        }
    }

    const fn lost(self) -> LeaseError {
        match self {
            Self::Blob => LeaseError::LostOnBlob,
            Self::Container => LeaseError::LostOnContainer,
        }
    }

    const fn not_present(self) -> LeaseError {
        match self {
            Self::Blob => LeaseError::NotPresentOnBlob,
            Self::Container => LeaseError::NotPresentOnContainer,
        }
    }
}

impl Lease {
    pub fn state_at(&self, now: Timestamp) -> LeaseState {
        match *self {
            Self::Available => LeaseState::Available,
            Self::Leased { id, seconds: None, .. } => LeaseState::Leased { id, is_infinite: true },
            Self::Leased { id, seconds: Some(seconds), since } => {
                if now < seconds_after(since, seconds) {
                    LeaseState::Leased { id, is_infinite: false }
                } else {
                    LeaseState::Expired { id }
                }
            }
            Self::Breaking { id, until } if now < until => LeaseState::Breaking { id, until },
            Self::Breaking { id, .. } | Self::Broken { id } => LeaseState::Broken { id },
        }
    }

    /// Acquires the lease with the id `proposed`. `seconds` is `None` for an infinite lease.
    pub fn acquire(
        &self,
        now: Timestamp,
        seconds: Option<u32>,
        proposed: Uuid,
    ) -> Result<Self, LeaseError> {
        match self.state_at(now) {
            LeaseState::Leased { id, .. } if id != proposed => Err(LeaseError::AlreadyPresent),
            LeaseState::Breaking { id, .. } => Err(if id == proposed {
                LeaseError::BreakingOnAcquire
            } else {
                LeaseError::AlreadyPresent
            }),
            _ => Ok(Self::Leased { id: proposed, seconds, since: now }),
        }
    }

    /// Renews the lease for its duration. An expired lease can be renewed as long as nothing was written.
    pub fn renew(&self, now: Timestamp, given: Uuid) -> Result<Self, LeaseError> {
        match (self.state_at(now), self) {
            (LeaseState::Available, _) => Err(LeaseError::NotPresent),
            (_, Self::Leased { id, seconds, .. }) if *id == given => {
                Ok(Self::Leased { id: given, seconds: *seconds, since: now })
            }
            (LeaseState::Breaking { id, .. } | LeaseState::Broken { id }, _) if id == given => {
                Err(LeaseError::BrokenOnRenew)
            }
            _ => Err(LeaseError::IdMismatch),
        }
    }

    /// Changes the id of the lease. Repeating a change is allowed.
    pub fn change(&self, now: Timestamp, given: Uuid, proposed: Uuid) -> Result<Self, LeaseError> {
        match (self.state_at(now), self) {
            (LeaseState::Leased { id, .. }, Self::Leased { seconds, since, .. })
                if id == given || id == proposed =>
            {
                Ok(Self::Leased { id: proposed, seconds: *seconds, since: *since })
            }
            (LeaseState::Leased { .. }, _) => Err(LeaseError::IdMismatch),
            (LeaseState::Breaking { id, .. }, _) => {
                Err(if id == given { LeaseError::BreakingOnChange } else { LeaseError::IdMismatch })
            }
            _ => Err(LeaseError::NotPresent),
        }
    }

    pub fn release(&self, now: Timestamp, given: Uuid) -> Result<Self, LeaseError> {
        match self.state_at(now) {
            LeaseState::Available => Err(LeaseError::NotPresent),
            LeaseState::Leased { id, .. }
            | LeaseState::Expired { id }
            | LeaseState::Breaking { id, .. }
            | LeaseState::Broken { id }
                if id == given =>
            {
                Ok(Self::Available)
            }
            _ => Err(LeaseError::IdMismatch),
        }
    }

    /// Breaks the lease after at most `period` seconds, and returns the remaining seconds. Without a period,
    /// an infinite lease breaks immediately, and a fixed one when it expires.
    pub fn break_after(
        &self,
        now: Timestamp,
        period: Option<u32>,
    ) -> Result<(Self, i64), LeaseError> {
        let wanted = period.map(|period| seconds_after(now, period));
        let (id, until) = match (self.state_at(now), self) {
            (LeaseState::Available, _) => return Err(LeaseError::NotPresent),
            (LeaseState::Leased { id, .. }, Self::Leased { seconds: Some(seconds), since, .. }) => {
                let expiry = seconds_after(*since, *seconds);
                (id, wanted.map_or(expiry, |wanted| wanted.min(expiry)))
            }
            (LeaseState::Leased { id, .. }, _) => (id, wanted.unwrap_or(now)),
            (LeaseState::Breaking { id, until }, _) => {
                (id, wanted.map_or(until, |wanted| wanted.min(until)))
            }
            (LeaseState::Expired { id } | LeaseState::Broken { id }, _) => (id, now),
        };
        let remaining = until.duration_since(now);
        let part = i64::from(remaining.subsec_nanos() > 0);
        let remaining = remaining.as_secs().saturating_add(part).max(0);
        Ok(if until <= now {
            (Self::Broken { id }, 0)
        } else {
            (Self::Breaking { id, until }, remaining)
        })
    }

    /// Checks the lease id of a write operation, which an active lease requires.
    pub fn check_write(
        &self,
        now: Timestamp,
        given: Option<Uuid>,
        resource: LeasedResource,
    ) -> Result<(), LeaseError> {
        match (self.state_at(now), given) {
            (LeaseState::Leased { .. } | LeaseState::Breaking { .. }, None) => {
                Err(resource.id_missing())
            }
            _ => self.check_read(now, given, resource),
        }
    }

    /// Checks the lease id of a read operation, which may omit it.
    pub fn check_read(
        &self,
        now: Timestamp,
        given: Option<Uuid>,
        resource: LeasedResource,
    ) -> Result<(), LeaseError> {
        let Some(given) = given else { return Ok(()) };
        match self.state_at(now) {
            LeaseState::Leased { id, .. } | LeaseState::Breaking { id, .. } if id == given => {
                Ok(())
            }
            LeaseState::Leased { .. } | LeaseState::Breaking { .. } => Err(resource.id_mismatch()),
            LeaseState::Expired { .. } | LeaseState::Broken { .. } => Err(resource.lost()),
            LeaseState::Available => Err(resource.not_present()),
        }
    }

    /// The lease after a write: an expired lease can no longer be renewed.
    #[must_use]
    pub fn after_write(&self, now: Timestamp) -> Self {
        match self.state_at(now) {
            LeaseState::Expired { .. } | LeaseState::Broken { .. } => Self::Available,
            _ => self.clone(),
        }
    }
}

fn seconds_after(from: Timestamp, seconds: u32) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(i64::from(seconds))).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Uuid = Uuid::from_u128(1);
    const TWO: Uuid = Uuid::from_u128(2);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A lease of each state at second 100.
    fn leases() -> [(&'static str, Lease); 6] {
        let leased = |seconds, since| Lease::Leased { id: ONE, seconds, since: at(since) };
        [
            ("available", Lease::Available),
            ("leased", leased(Some(60), 90)),
            ("leased", leased(None, 0)),
            ("expired", leased(Some(15), 10)),
            ("breaking", Lease::Breaking { id: ONE, until: at(130) }),
            ("broken", Lease::Breaking { id: ONE, until: at(100) }),
        ]
    }

    #[test]
    fn state_follows_the_clock() {
        for (state, lease) in leases() {
            assert_eq!(lease.state_at(at(100)).name(), state);
        }
    }

    /// The documented outcomes: the error code, or `Ok` with the next state.
    #[test]
    fn outcomes_of_lease_operations_are_those_of_the_documentation() {
        type Outcome = Result<&'static str, LeaseError>;
        let name = |outcome: Result<Lease, LeaseError>| -> Outcome {
            outcome.map(|lease| lease.state_at(at(100)).name())
        };
        let (already, mismatch, none) = (
            Err(LeaseError::AlreadyPresent),
            Err(LeaseError::IdMismatch),
            Err(LeaseError::NotPresent),
        );
        let (breaking, broken) =
            (Err(LeaseError::BreakingOnAcquire), Err(LeaseError::BrokenOnRenew));
        // Available, fixed, infinite, expired, breaking, broken.
        let leased = Ok("leased");
        let available = Ok("available");
        let expected: [(&str, [Outcome; 6]); 8] = [
            ("acquire same", [leased, leased, leased, leased, breaking, leased]),
            ("acquire other", [leased, already, already, leased, already, leased]),
            ("renew same", [none, leased, leased, leased, broken, broken]),
            ("renew other", [none, mismatch, mismatch, mismatch, mismatch, mismatch]),
            ("change same", [none, leased, leased, none, Err(LeaseError::BreakingOnChange), none]),
            ("release same", [none, available, available, available, available, available]),
            ("release other", [none, mismatch, mismatch, mismatch, mismatch, mismatch]),
            (
                "break",
                [none, Ok("breaking"), Ok("broken"), Ok("broken"), Ok("breaking"), Ok("broken")],
            ),
        ];
        let now = at(100);
        for (operation, outcomes) in expected {
            for ((state, lease), outcome) in leases().into_iter().zip(outcomes) {
                let found = match operation {
                    "acquire same" => lease.acquire(now, Some(15), ONE),
                    "acquire other" => lease.acquire(now, None, TWO),
                    "renew same" => lease.renew(now, ONE),
                    "renew other" => lease.renew(now, TWO),
                    "change same" => lease.change(now, ONE, TWO),
                    "release same" => lease.release(now, ONE),
                    "release other" => lease.release(now, TWO),
                    _ => lease.break_after(now, None).map(|(lease, _)| lease),
                };
                assert_eq!(name(found), outcome, "{operation} {state}");
            }
        }
    }

    #[test]
    fn break_period_only_shortens_a_fixed_lease() {
        let lease = Lease::Leased { id: ONE, seconds: Some(60), since: at(90) };
        for (period, remaining) in [(None, 50), (Some(10), 10), (Some(60), 50), (Some(0), 0)] {
            assert_eq!(lease.break_after(at(100), period).unwrap().1, remaining, "{period:?}");
        }
    }

    #[test]
    fn writes_need_the_id_of_an_active_lease() {
        for (state, lease) in leases() {
            let check = |given| lease.check_write(at(100), given, LeasedResource::Blob);
            if matches!(state, "leased" | "breaking") {
                assert_eq!(check(None), Err(LeaseError::IdMissingOnBlob));
                assert_eq!(check(Some(ONE)), Ok(()));
                assert_eq!(check(Some(TWO)), Err(LeaseError::IdMismatchOnBlob));
            } else {
                assert_eq!(check(None), Ok(()));
                let expected = if state == "available" {
                    LeaseError::NotPresentOnBlob
                } else {
                    LeaseError::LostOnBlob
                };
                assert_eq!(check(Some(ONE)), Err(expected), "{state}");
                assert_eq!(lease.after_write(at(100)), Lease::Available);
            }
        }
    }
}
