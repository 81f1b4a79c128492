//! Names and label values, as the Secrets Store CSI driver makes them, within their limits.

use std::path::Path;

use lanyard_keyvault::VolumePod;

use super::digest::{hex_prefix, sha256_of_texts};

/// The name of the pod status of a volume: `<pod>-<namespace>-<class>`, as upstream, by which it
/// and we find each other's. One that is too long for an object ends in its digest.
pub(crate) fn pod_status_name(pod: &VolumePod, class: &str) -> String {
    let name = plain_pod_status_name(pod, class);
    if name.len() <= MAX_NAME {
        return name;
    }
    let digest = sha256_of_texts(&[&name]);
    truncate_with_suffix(&name, MAX_NAME, &hex_prefix(&digest, DIGEST_BYTES))
}

/// The name of the pod status of a volume whose plain name is another volume's.
pub(crate) fn pod_status_name_with_digest(pod: &VolumePod, class: &str, target: &Path) -> String {
    let target = target.to_string_lossy();
    let digest = sha256_of_texts(&[&pod.namespace, &pod.name, class, &target]);
    truncate_with_suffix(
        &plain_pod_status_name(pod, class),
        MAX_NAME,
        &hex_prefix(&digest, DIGEST_BYTES),
    )
}

/// The value of the node's label: the name of the node, or its beginning and its digest where
/// that is too long for a label.
pub(crate) fn node_label_value(node: &str) -> String {
    if node.len() <= MAX_LABEL {
        return node.to_owned();
    }
    truncate_with_suffix(node, MAX_LABEL, &hex_prefix(&sha256_of_texts(&[node]), DIGEST_BYTES))
}

/// The name of an event about an object.
pub(crate) fn event_name(object: &str, digest: &[u8; 32]) -> String {
    truncate_with_suffix(object, MAX_NAME, &hex_prefix(digest, DIGEST_BYTES))
}

fn plain_pod_status_name(pod: &VolumePod, class: &str) -> String {
    format!("{}-{}-{class}", pod.name, pod.namespace)
}

/// As much of a name as there is room for, and an ending. What is cut ends in a letter or digit,
/// so that the whole stays a name.
fn truncate_with_suffix(name: &str, limit: usize, ending: &str) -> String {
    let room = limit - ending.len() - 1;
    let kept: String = name.chars().take(room).collect();
    let kept = kept.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
    format!("{kept}-{ending}")
}

/// RFC 1123 subdomain: names of objects.
const MAX_NAME: usize = 253;
/// Values of labels.
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
        let beside = |target: &str| pod_status_name_with_digest(&pod("p"), "c", Path::new(target));
        assert_ne!(beside("/one"), beside("/two"));
        assert!(beside("/one").starts_with("p-clusters-one-c-"));
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
