//! What a volume's own attributes may say beside its class.
//!
//! Upstream lays all attributes of the volume over the parameters of the class, so whoever writes a
//! pod chooses the vault and the identity, whatever the class says. Here the class has the word, and
//! a volume adds only who it is for. [`PodOverrides::PermissionRestored`] is upstream's way.

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
    /// They do not.
    #[default]
    Refused,
    /// They do, as upstream: for clusters whose pods depend on it.
    Allowed,
}

impl PodOverrides {
    /// The class as it is for a volume with these attributes.
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

/// The attributes that another provider is told, without tokens: the parameters of the class and
/// who the volume is for. What the class says in the kubelet's name is nobody's word.
pub(crate) fn provider_attributes(
    class: &SecretProviderClass,
    pod: &VolumePod,
    attributes: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let parameters = class.spec.parameters.iter().flatten();
    let mut told: BTreeMap<String, String> = parameters
        .filter(|(key, _)| !key.starts_with(KUBELET_PREFIX))
        .map(|(key, text)| (key.clone(), text.clone()))
        .collect();
    for key in [CLASS, EPHEMERAL] {
        if let Some(text) = attributes.get(key) {
            told.insert(key.to_owned(), text.clone());
        }
    }
    let pod = [
        (POD_NAME, &pod.name),
        (POD_NAMESPACE, &pod.namespace),
        (POD_UID, &pod.uid),
        (SERVICE_ACCOUNT, &pod.service_account),
    ];
    told.extend(pod.map(|(key, text)| (key.to_owned(), text.clone())));
    told
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
        let told = provider_attributes(&class(), &pod(), &map(ATTRIBUTES));
        let expected = map(&[
            ("keyvaultName", "of-the-class"),
            (CLASS, "c"),
            (EPHEMERAL, "true"),
            (POD_NAME, "p"),
            (POD_NAMESPACE, "n"),
            (POD_UID, "u"),
            (SERVICE_ACCOUNT, "s"),
        ]);
        assert_eq!(told, expected);
    }
}
