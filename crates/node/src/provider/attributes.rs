//! Volume attributes that may add to the parameters of a class.
//!
//! Upstream overrides the parameters of the class with all attributes of the volume, so the author of a pod
//! chooses the vault and the identity regardless of the class. Here the class decides, and the volume only
//! adds the identity of the pod. [`PodOverrides::Allowed`] restores upstream's behaviour.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_api::SecretProviderClass;
use lanyard_keyvault::VolumePod;

use crate::volume_attribute::{
    CLASS, EPHEMERAL, KUBELET_PREFIX, POD_NAME, POD_NAMESPACE, POD_UID, SERVICE_ACCOUNT,
    is_user_attribute,
};

/// Whether the attributes of a volume override the parameters of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodOverrides {
    /// They do not override the class.
    #[default]
    Refused,
    /// They override the class, as upstream does, for clusters whose pods depend on it.
    Allowed,
}

impl PodOverrides {
    /// Returns the class as it applies to a volume with these attributes.
    pub fn apply_to<'a>(
        self,
        class: &'a SecretProviderClass,
        attributes: &BTreeMap<String, String>,
    ) -> Cow<'a, SecretProviderClass> {
        let own = attributes.iter().filter(|(key, _)| is_user_attribute(key));
        if self == Self::Refused || own.clone().next().is_none() {
            return Cow::Borrowed(class);
        }
        let mut class = class.clone();
        let parameters = class.spec.parameters.get_or_insert_default();
        parameters.extend(own.map(|(key, text)| (key.clone(), text.clone())));
        Cow::Owned(class)
    }
}

/// Returns the attributes for an external provider, without tokens: the parameters of the class and the
/// identity of the pod. Parameters of the class with the kubelet's prefix are dropped, because the kubelet
/// does not vouch for them.
pub(crate) fn provider_attributes(
    class: &SecretProviderClass,
    pod: &VolumePod,
    attributes: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let parameters = class.spec.parameters.iter().flatten();
    let mut merged: BTreeMap<String, String> = parameters
        .filter(|(key, _)| !key.starts_with(KUBELET_PREFIX))
        .map(|(key, text)| (key.clone(), text.clone()))
        .collect();
    for key in [CLASS, EPHEMERAL] {
        if let Some(text) = attributes.get(key) {
            merged.insert(key.to_owned(), text.clone());
        }
    }
    let pod = [
        (POD_NAME, &pod.name),
        (POD_NAMESPACE, &pod.namespace),
        (POD_UID, &pod.uid),
        (SERVICE_ACCOUNT, &pod.service_account),
    ];
    merged.extend(pod.map(|(key, text)| (key.to_owned(), text.clone())));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_attribute::TOKENS;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    fn class() -> SecretProviderClass {
        let mut class = SecretProviderClass::default();
        class.spec.parameters = Some(map(&[
            ("keyvaultName", "of-the-class"),
            (POD_NAMESPACE, "spoofed"),
            (TOKENS, "spoofed"),
        ]));
        class
    }

    fn pod() -> VolumePod {
        let [namespace, name, uid, service_account] = ["n", "p", "u", "s"].map(str::to_owned);
        VolumePod { namespace, name, uid, service_account }
    }

    const ATTRIBUTES: &[(&str, &str)] = &[
        (CLASS, "c"),
        (EPHEMERAL, "true"),
        (POD_NAME, "another"),
        ("keyvaultName", "of-the-pod"),
        ("csi.storage.k8s.io/other", "x"),
    ];

    #[test]
    fn pod_attributes_override_the_class_only_if_allowed() {
        let (class, attributes) = (class(), map(ATTRIBUTES));
        let refused = PodOverrides::Refused.apply_to(&class, &attributes);
        assert_eq!(refused.spec.parameters, class.spec.parameters);
        let allowed = PodOverrides::Allowed.apply_to(&class, &attributes);
        let parameters = allowed.spec.parameters.clone().unwrap();
        assert_eq!(parameters["keyvaultName"], "of-the-pod");
        assert_eq!(parameters.len(), 3, "{parameters:?}");
    }

    #[test]
    fn pod_identity_attributes_come_from_the_kubelet_only() {
        let merged = provider_attributes(&class(), &pod(), &map(ATTRIBUTES));
        let expected = map(&[
            ("keyvaultName", "of-the-class"),
            (CLASS, "c"),
            (EPHEMERAL, "true"),
            (POD_NAME, "p"),
            (POD_NAMESPACE, "n"),
            (POD_UID, "u"),
            (SERVICE_ACCOUNT, "s"),
        ]);
        assert_eq!(merged, expected);
    }
}
