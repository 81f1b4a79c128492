//! Keys of volume attributes: `volume_context` in CSI, `attributes` in the provider protocol,
//! `volumeAttributes` in a pod.

/// The prefix of the kubelet's own keys.
pub(crate) const KUBELET_PREFIX: &str = "csi.storage.k8s.io/";

/// The name of the SecretProviderClass, in the pod's namespace.
pub(crate) const CLASS: &str = "secretProviderClass";
pub(crate) const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
pub(crate) const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
pub(crate) const POD_UID: &str = "csi.storage.k8s.io/pod.uid";
pub(crate) const SERVICE_ACCOUNT: &str = "csi.storage.k8s.io/serviceAccount.name";

/// Whether the volume is ephemeral, with the lifetime of its pod.
pub(crate) const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// The ServiceAccount tokens. Since Kubernetes 1.35, with `serviceAccountTokenInSecrets` (KEP-5538), the
/// kubelet puts them into the secrets of a request, otherwise among the attributes.
pub(crate) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Returns whether the author of the pod may choose this key, so that it may be a parameter of the class.
pub(crate) fn is_user_attribute(key: &str) -> bool {
    !key.starts_with(KUBELET_PREFIX) && key != CLASS
}
