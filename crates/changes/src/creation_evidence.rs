//! What the journal knows about the creation of a resource.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Who created a resource, and when, as the service says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreationMark {
    /// The time of the creation as Azure writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
    /// The creator: an object id, an application id or the name of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// An id that Azure gives each new resource: the `resourceGuid` of a network resource, or the `principalId` of a
    /// managed identity. Network resources have neither creator nor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
}

/// What the journal knows about the creation of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreationEvidence {
    /// Nothing. Journals of format 2 do not record it.
    Unknown,
    /// A creation began, and its result is unknown.
    Announced {
        /// When it began.
        at: Timestamp,
        /// The names under which Azure may record the signed-in identity as the creator.
        by: Vec<String>,
    },
    /// The body of the resource after the creation, or when it was imported.
    Confirmed(CreationMark),
}

/// The reply to a write and a later read may give the time of a creation with different precision.
const PRECISION: SignedDuration = SignedDuration::from_secs(5);
/// How far the clock of this machine may be ahead of Azure's.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

impl CreationMark {
    /// The mark of a resource whose creator is unknown.
    pub fn at(time: Timestamp) -> Self {
        Self { at: Some(time.to_string()), ..Self::default() }
    }

    /// Whether a live resource can be the one with this mark. Azure leaves the creator out of some replies, so only
    /// the values that this mark has are compared.
    fn agrees_with(&self, live: &Self) -> bool {
        let is_same_creator = match (&self.by, &live.by) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let is_same_time = match (self.time(), live.time()) {
            (Some(one), Some(other)) => one.duration_since(other).abs() <= PRECISION,
            (Some(_), None) => false,
            (None, _) => self.at.is_none() || self.at == live.at,
        };
        let is_same_id = self.id.is_none() || self.id == live.id;
        is_same_creator && is_same_time && is_same_id
    }

    fn time(&self) -> Option<Timestamp> {
        self.at.as_ref()?.parse().ok()
    }
}

impl CreationEvidence {
    /// Whether a live resource is the one whose creation the journal records: Azure reported the time of the creation
    /// or an id, and reports the same now.
    pub(crate) fn proves(&self, live: &CreationMark) -> bool {
        match self {
            Self::Confirmed(mark) => {
                (mark.time().is_some() || mark.id.is_some()) && mark.agrees_with(live)
            }
            Self::Unknown | Self::Announced { .. } => false,
        }
    }

    /// Whether a live resource can be the one whose creation the journal records.
    pub(crate) fn agrees_with(&self, live: &CreationMark) -> bool {
        match self {
            // Only entries of creations announce one, so this record is older, or of another tool's resource.
            Self::Unknown => true,
            Self::Confirmed(mark) => mark.agrees_with(live),
            Self::Announced { at, by } => {
                let is_caller =
                    |creator: &String| by.iter().any(|name| name.eq_ignore_ascii_case(creator));
                live.by.as_ref().is_some_and(is_caller)
                    && live.time().is_some_and(|created| created + CLOCK_SKEW >= *at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "11111111-2222-3333-4444-555555555555";

    fn mark(at: &str, by: &str) -> CreationMark {
        CreationMark { at: Some(at.to_owned()), by: Some(by.to_owned()), id: None }
    }

    #[test]
    fn another_assigned_id_is_another_resource() {
        let network =
            |id: &str| CreationMark { id: Some(id.to_owned()), ..CreationMark::default() };
        assert!(network("a").agrees_with(&network("a")));
        assert!(!network("a").agrees_with(&network("b")));
    }

    #[test]
    fn another_creator_or_time_is_another_resource() {
        let ours = mark("2026-01-01T00:00:00.1234567Z", CALLER);
        let confirmed = CreationEvidence::Confirmed(ours);
        for (live, expected) in [
            (mark("2026-01-01T00:00:00.123Z", &CALLER.to_uppercase()), true),
            (mark("2026-01-01T00:01:00Z", CALLER), false),
            (mark("2026-01-01T00:00:00Z", "somebody@example.com"), false),
            (mark("yesterday", CALLER), false),
            (CreationMark::default(), false),
        ] {
            assert_eq!(confirmed.agrees_with(&live), expected, "{live:?}");
            assert_eq!(confirmed.proves(&live), expected, "{live:?}");
        }
        let without_creator = CreationMark::at("2026-01-01T00:00:00Z".parse().unwrap());
        let confirmed = CreationEvidence::Confirmed(without_creator);
        assert!(confirmed.agrees_with(&mark("2026-01-01T00:00:00Z", CALLER)));
    }

    #[test]
    fn announced_creation_needs_the_caller_and_a_later_time() {
        let announced = CreationEvidence::Announced {
            at: "2026-01-01T12:00:00Z".parse().unwrap(),
            by: vec![CALLER.to_owned()],
        };
        for (live, expected) in [
            (mark("2026-01-01T12:00:01Z", CALLER), true),
            (mark("2026-01-01T11:56:00Z", CALLER), true),
            (mark("2026-01-01T11:00:00Z", CALLER), false),
            (mark("2026-01-01T12:00:01Z", "other"), false),
            (CreationMark::default(), false),
        ] {
            assert_eq!(announced.agrees_with(&live), expected, "{live:?}");
        }
        assert!(CreationEvidence::Unknown.agrees_with(&CreationMark::default()));
        let without_time = CreationEvidence::Confirmed(CreationMark::default());
        for evidence in [announced, CreationEvidence::Unknown, without_time] {
            assert!(!evidence.proves(&mark("2026-01-01T12:00:01Z", CALLER)), "{evidence:?}");
        }
    }
}
