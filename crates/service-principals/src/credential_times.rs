//! When a credential is valid, and when it should be replaced.

use jiff::{SignedDuration, Timestamp};

/// How many days before its end a credential is renewed, by the vault and by `lanyard refresh identities`.
pub(crate) const RENEWAL_DAYS: i32 = 90;

/// The times of a credential document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CredentialTimes {
    /// The begin of the certificate's validity.
    pub(crate) not_before: Timestamp,
    /// The end of the certificate's validity.
    pub(crate) not_after: Timestamp,
    /// The time from which the credential should be replaced.
    pub(crate) renew_after: Timestamp,
}

impl CredentialTimes {
    /// The times of a certificate: renewed 90 days before its end, or in the middle of its validity if that is
    /// later.
    pub(crate) fn of_certificate(not_before: Timestamp, not_after: Timestamp) -> Self {
        let half = not_after.duration_since(not_before) / 2;
        let days = SignedDuration::from_hours(24 * i64::from(RENEWAL_DAYS));
        let lead = half.min(days);
        let renew_after = not_after.checked_sub(lead).unwrap_or(not_before);
        Self { not_before, not_after, renew_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_is_renewed_90_days_before_its_end_or_in_the_middle() {
        for (not_after, renew_after) in [
            ("2027-01-01T00:00:00Z", "2026-10-03T00:00:00Z"),
            ("2026-01-31T00:00:00Z", "2026-01-16T00:00:00Z"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ] {
            let begin = "2026-01-01T00:00:00Z".parse().unwrap();
            let times = CredentialTimes::of_certificate(begin, not_after.parse().unwrap());
            assert_eq!(times.renew_after.to_string(), renew_after);
        }
    }
}
