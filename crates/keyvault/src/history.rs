//! Selects the versions of an object for a version history.

use lanyard_api::VaultObjectVersion;

use crate::source::ListedVersion;

/// Errors of selecting the versions of a version history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    #[error("no version is enabled")]
    NoEnabledVersion,
    /// The start version is disabled or does not exist.
    #[error("version `{start}` to begin with is not among the {enabled} enabled versions")]
    StartVersionNotFound {
        /// The start version.
        start: VaultObjectVersion,
        /// The number of enabled versions.
        enabled: usize,
    },
}

/// The start version that denotes the newest version.
const LATEST_VERSION: &str = "latest";

/// The version to request from the vault; `None` for the current one.
///
/// Upstream handles `latest` only in histories; for a single version it requests a version of that name,
/// which does not exist.
pub(crate) fn requested_version(
    version: Option<&VaultObjectVersion>,
) -> Option<&VaultObjectVersion> {
    version.filter(|version| version.as_str() != LATEST_VERSION)
}

/// Returns at most `count` enabled versions from `start` on, newest first.
///
/// Versions without a creation time count as created at the epoch, as in upstream. Upstream returns one
/// version more than requested; this function does not.
pub fn select_history(
    versions: &[ListedVersion],
    start: Option<&VaultObjectVersion>,
    count: u32,
) -> Result<Vec<VaultObjectVersion>, HistoryError> {
    let mut versions: Vec<&ListedVersion> =
        versions.iter().filter(|listed| listed.attributes.enabled != Some(false)).collect();
    versions.sort_by_key(|listed| {
        std::cmp::Reverse(listed.attributes.created.unwrap_or(jiff::Timestamp::UNIX_EPOCH))
    });
    let first = match requested_version(start) {
        None if versions.is_empty() => return Err(HistoryError::NoEnabledVersion),
        None => 0,
        Some(start) => {
            let found = versions.iter().position(|listed| listed.version == *start);
            found.ok_or_else(|| HistoryError::StartVersionNotFound {
                start: start.clone(),
                enabled: versions.len(),
            })?
        }
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(versions.into_iter().skip(first).take(count).map(|listed| listed.version.clone()).collect())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::source::ObjectAttributes;

    fn listed_version(name: &str, created: Option<i64>, enabled: Option<bool>) -> ListedVersion {
        let created = created.map(|second| Timestamp::from_second(second).unwrap());
        let attributes = ObjectAttributes { enabled, created, ..ObjectAttributes::default() };
        ListedVersion { version: name.parse().unwrap(), attributes }
    }

    fn four_enabled_versions() -> Vec<ListedVersion> {
        vec![
            listed_version("v2", Some(20), Some(true)),
            listed_version("v4", Some(40), None),
            listed_version("off", Some(50), Some(false)),
            listed_version("v0", None, Some(true)),
            listed_version("v3", Some(30), Some(true)),
        ]
    }

    fn selected_names(start: Option<&str>, count: u32) -> Vec<String> {
        let start = start.map(|name| name.parse().unwrap());
        let selected = select_history(&four_enabled_versions(), start.as_ref(), count).unwrap();
        selected.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn history_has_at_most_count_newest_enabled_versions() {
        assert_eq!(selected_names(None, 2), ["v4", "v3"]);
        assert_eq!(selected_names(Some("latest"), 3), ["v4", "v3", "v2"]);
        assert_eq!(selected_names(None, 4), ["v4", "v3", "v2", "v0"]);
        assert_eq!(selected_names(None, 9), ["v4", "v3", "v2", "v0"]);
        assert_eq!(selected_names(Some("v3"), 2), ["v3", "v2"]);
        assert_eq!(selected_names(Some("v0"), 2), ["v0"]);
    }

    #[test]
    fn unknown_start_version_is_an_error() {
        let start: VaultObjectVersion = "off".parse().unwrap();
        let error = select_history(&four_enabled_versions(), Some(&start), 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "version `off` to begin with is not among the 4 enabled versions"
        );
        assert_eq!(select_history(&[], None, 2), Err(HistoryError::NoEnabledVersion));
    }

    proptest! {
        #[test]
        fn history_never_exceeds_the_requested_count(ages in prop::collection::vec(0i64..50, 1..20), count in 1u32..25) {
            let versions: Vec<_> = ages
                .iter()
                .enumerate()
                .map(|(index, age)| listed_version(&format!("v{index}"), Some(*age), None))
                .collect();
            let selected = select_history(&versions, None, count).unwrap();
            prop_assert_eq!(selected.len(), ages.len().min(usize::try_from(count).unwrap()));
            let age = |version: &VaultObjectVersion| {
                ages[version.as_str()[1..].parse::<usize>().unwrap()]
            };
            prop_assert!(selected.windows(2).all(|pair| age(&pair[0]) >= age(&pair[1])));
        }
    }
}
