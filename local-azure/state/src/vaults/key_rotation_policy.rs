//! The rotation policy of a key: when the vault creates the next version.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Serialize};

use super::object_store::StoredObjectAttributes;

/// The shortest time between creation and rotation, and between an action and expiry, in days.
pub const SHORTEST_INTERVAL_DAYS: i32 = 7;

/// The longest duration in a policy: longer than any that clients use, and far from the end of the calendar.
const LONGEST_YEARS: i32 = 100;

/// An ISO 8601 duration in its original form, such as `P90D`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IsoDuration(String);

/// A text is not a supported ISO 8601 duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseIsoDurationError {
    #[error("`{0}` is not a duration of ISO 8601 such as `P90D`")]
    Malformed(String),
    #[error("`{0}` is longer than {LONGEST_YEARS} years")]
    TooLong(String),
}

impl TryFrom<String> for IsoDuration {
    type Error = ParseIsoDurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.parse::<Span>() {
            Ok(span) if span.is_positive() && text.starts_with('P') => {}
            _ => return Err(ParseIsoDurationError::Malformed(text)),
        }
        let duration = Self(text);
        match duration.after_1970() {
            Some(end) if time_after_1970(Span::new().years(LONGEST_YEARS)) >= Some(end) => {
                Ok(duration)
            }
            _ => Err(ParseIsoDurationError::TooLong(duration.0)),
        }
    }
}

impl From<IsoDuration> for String {
    fn from(duration: IsoDuration) -> Self {
        duration.0
    }
}

impl IsoDuration {
    /// The duration as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn span(&self) -> Span {
        self.0.parse().unwrap_or_default()
    }

    /// The time after `start` by the calendar in UTC.
    fn after(&self, start: Timestamp) -> Option<Timestamp> {
        let end = start.to_zoned(TimeZone::UTC).checked_add(self.span()).ok()?;
        Some(end.timestamp())
    }

    /// The time before `end` by the calendar in UTC.
    fn before(&self, end: Timestamp) -> Option<Timestamp> {
        let start = end.to_zoned(TimeZone::UTC).checked_sub(self.span()).ok()?;
        Some(start.timestamp())
    }

    /// The time after the start of 1970, by which durations are compared.
    fn after_1970(&self) -> Option<Timestamp> {
        self.after(Timestamp::UNIX_EPOCH)
    }

    /// Whether the duration is at least that many days, counted from the start of 1970.
    pub fn is_at_least_days(&self, days: i32) -> bool {
        self.after_1970() >= time_after_1970(Span::new().days(days))
    }
}

fn time_after_1970(span: Span) -> Option<Timestamp> {
    let start = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
    start.checked_add(span).ok().map(|end| end.timestamp())
}

/// When a policy rotates a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RotationTrigger {
    TimeAfterCreate(IsoDuration),
    TimeBeforeExpiry(IsoDuration),
}

impl RotationTrigger {
    /// Rejects a trigger that rotates a version of this lifetime too soon after its creation or too
    /// close to its expiry.
    pub fn check(&self, expiry: Option<&IsoDuration>) -> Result<(), String> {
        let Some(expiry) = expiry else { return Ok(()) };
        let interval = Span::new().days(SHORTEST_INTERVAL_DAYS);
        let end = expiry.after_1970().unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC);
        let latest = end.checked_sub(interval).ok().map(|latest| latest.timestamp());
        let (field, time, rule) = match self {
            Self::TimeAfterCreate(time) => ("timeAfterCreate", time, "before expiry"),
            Self::TimeBeforeExpiry(time) => ("timeBeforeExpiry", time, "after creation"),
        };
        if time.after_1970() <= latest {
            return Ok(());
        }
        Err(format!(
            "`{field}` `{}` does not rotate a key with the `expiryTime` `{}` at least \
             {SHORTEST_INTERVAL_DAYS} days {rule}",
            time.0, expiry.0
        ))
    }
}

/// The rotation policy of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRotationPolicy {
    pub rotate: Option<RotationTrigger>,
    /// How long before expiry Azure would publish an event.
    pub notify_before_expiry: Option<IsoDuration>,
    /// The lifetime of new versions.
    pub expiry: Option<IsoDuration>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

impl KeyRotationPolicy {
    /// The expiry of a version that is created at a time.
    pub fn expiry_after(&self, created: Timestamp) -> Option<Timestamp> {
        self.expiry.as_ref()?.after(created)
    }

    /// When the key with this latest version is rotated.
    pub fn next_rotation(&self, latest: StoredObjectAttributes) -> Option<Timestamp> {
        match self.rotate.as_ref()? {
            RotationTrigger::TimeAfterCreate(time) => time.after(latest.created),
            RotationTrigger::TimeBeforeExpiry(time) => time.before(latest.expires?),
        }
    }

    /// The attributes of the version that exists at `now`, if the policy creates versions from `first` on.
    /// Versions that were due in between are omitted.
    pub fn attributes_at(&self, first: Timestamp, now: Timestamp) -> StoredObjectAttributes {
        let version_at = |created| {
            let mut attributes = StoredObjectAttributes::new(created);
            attributes.expires = self.expiry_after(created);
            attributes
        };
        let mut current = version_at(first);
        while let Some(next) = self.next_rotation(current)
            && next <= now
            && next > current.created
        {
            current = version_at(next);
        }
        current
    }
}
