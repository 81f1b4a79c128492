//! Object names and label values in the form of the Secrets Store CSI driver, within the API's length limits.

use std::path::Path;

use lanyard_keyvault::VolumePod;

use super::digest::{hex_prefix, sha256_of_texts};

/// Returns the name of the pod status of a volume: `<pod>-<namespace>-<class>`, as upstream, so that both
/// drivers find each other's objects. A name that is too long is truncated and ends in its digest.
pub(crate) fn pod_status_name(pod: &VolumePod, class: &str) -> String {
    let name = plain_pod_status_name(pod, class);
    if name.len() <= MAX_NAME {
        return name;
    }
    let digest = sha256_of_texts(&[&name]);
    truncate_with_suffix(&name, MAX_NAME, &hex_prefix(&digest, DIGEST_BYTES))
}

/// Returns the name of the pod status of a volume whose plain name belongs to another volume.
pub(crate) fn pod_status_name_with_digest(pod: &VolumePod, class: &str, target: &Path) -> String {
    let target = target.to_string_lossy();
    let digest = sha256_of_texts(&[&pod.namespace, &pod.name, class, &target]);
    truncate_with_suffix(
        &plain_pod_status_name(pod, class),
        MAX_NAME,
        &hex_prefix(&digest, DIGEST_BYTES),
    )
}

/// Returns the value of the node label: the name of the node, or its beginning and its digest if the name is
/// too long for a label.
pub(crate) fn node_label_value(node: &str) -> String {
    if node.len() <= MAX_LABEL {
        return node.to_owned();
    }
    truncate_with_suffix(node, MAX_LABEL, &hex_prefix(&sha256_of_texts(&[node]), DIGEST_BYTES))
}

/// Returns the name of an event about an object.
pub(crate) fn event_name(object: &str, digest: &[u8; 32]) -> String {
    truncate_with_suffix(object, MAX_NAME, &hex_prefix(digest, DIGEST_BYTES))
}

fn plain_pod_status_name(pod: &VolumePod, class: &str) -> String {
    format!("{}-{}-{class}", pod.name, pod.namespace)
}

/// Truncates a name and appends a suffix. The truncated part ends in a letter or digit, so that the result is
/// a valid name.
fn truncate_with_suffix(name: &str, limit: usize, ending: &str) -> String {
    let available = limit - ending.len() - 1;
    let truncated: String = name.chars().take(available).collect();
    let truncated = truncated.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
    format!("{truncated}-{ending}")
}

/// The maximum length of an object name (RFC 1123 subdomain).
const MAX_NAME: usize = 253;
/// The maximum length of a label value.
const MAX_LABEL: usize = 63;
const DIGEST_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(name: &str) -> VolumePod {
        VolumePod {
            namespace: "clusters-one".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            service_account: String::new(),
        }
    }

    fn is_subdomain(name: &str) -> bool {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        name.len() <= 253
            && name.chars().all(allowed)
            && edge(name.chars().next())
            && edge(name.chars().last())
    }

    #[test]
    fn the_name_is_that_of_upstream() {
        assert_eq!(pod_status_name(&pod("kms-0"), "kms"), "kms-0-clusters-one-kms");
    }

    #[test]
    fn a_name_that_is_too_long_ends_in_a_digest_and_stays_distinct() {
        let long = "a".repeat(200);
        let (one, two) = (format!("{long}.x"), format!("{long}.y"));
        let (one, two) = (pod_status_name(&pod(&one), &long), pod_status_name(&pod(&two), &long));
        assert!(is_subdomain(&one) && is_subdomain(&two), "{one} {two}");
        assert_ne!(one, two);
    }

    #[test]
    fn volumes_that_would_share_a_name_get_one_each() {
        let (one, two) = (pod("p"), pod("p-clusters-one-q"));
        assert_eq!(pod_status_name(&one, "q-clusters-one-c"), pod_status_name(&two, "c"));
        let with_digest =
            |target: &str| pod_status_name_with_digest(&pod("p"), "c", Path::new(target));
        assert_ne!(with_digest("/one"), with_digest("/two"));
        assert!(with_digest("/one").starts_with("p-clusters-one-c-"));
    }

    #[test]
    fn only_node_names_that_fit_no_label_are_changed() {
        assert_eq!(node_label_value("aks-pool-0.internal"), "aks-pool-0.internal");
        let long = format!("{}.{}", "n".repeat(45), "m".repeat(80));
        let value = node_label_value(&long);
        assert_eq!(value.len(), 45 + 17, "{value}");
        assert_ne!(value, node_label_value(&format!("{long}x")));
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_the_api_takes(
            name in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?",
            class in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?",
        ) {
            let pod = pod(&name);
            prop_assert!(is_subdomain(&pod_status_name(&pod, &class)));
            prop_assert!(is_subdomain(&pod_status_name_with_digest(&pod, &class, Path::new("/t"))));
            prop_assert!(is_subdomain(&event_name(&name, &[7; 32])));
            prop_assert!(node_label_value(&name).len() <= 63);
        }
    }
}
